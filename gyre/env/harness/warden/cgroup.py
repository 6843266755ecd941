"""What the kernel counted of a control group, of either version, while it is there.

| | version 1 | version 2 |
|---|---|---|
| processor time | cpuacct's `cpuacct.usage`, ns | `cpu.stat`: `usage_usec` |
| processes killed for want of memory | memory's `memory.oom_control`: `oom_kill` | `memory.events`: `oom_kill` |
| threads refused | pids' `pids.events`: `max` | the same |
"""

import contextlib

ROOT = "/sys/fs/cgroup"


class Group:
    """That of one process."""

    def __init__(self, lines: str, root: str = ROOT) -> None:
        """`lines`: its /proc/PID/cgroup, `hierarchy:controllers:path` each."""
        paths = {}
        for line in lines.splitlines():
            _, controllers, path = line.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path)
        self._is_first = "memory" in paths
        self._cpu = f"{root}/cpuacct{paths.get('cpuacct')}" if self._is_first else f"{root}{paths.get('')}"
        self._memory = f"{root}/memory{paths['memory']}" if self._is_first else self._cpu
        self._pids = f"{root}/pids{paths.get('pids')}" if self._is_first else self._cpu

    def cpu_s(self) -> float | None:
        """None: it is gone, or does not tell."""
        if self._is_first:
            return int(text) / 1e9 if (text := _text(f"{self._cpu}/cpuacct.usage")) else None
        used_us = _fields(f"{self._cpu}/cpu.stat").get("usage_usec")
        return None if used_us is None else used_us / 1e6

    def refused(self) -> str | None:
        """The bound that the kernel had to keep, empty where none; None: the group is gone, or does not tell."""
        kills = _fields(f"{self._memory}/memory.{'oom_control' if self._is_first else 'events'}").get("oom_kill")
        if kills is None:
            return None
        return "memory" if kills else "processes" if _fields(f"{self._pids}/pids.events").get("max") else ""


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        return file.read()
    return ""


def _fields(path: str) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, _text(path).splitlines())}
