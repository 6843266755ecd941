"""A command in a container: its processes hang below podman's monitor and that below the warden, so they are measured and ended as any others.

    podman run --detach ──starts──▶ monitor ──▶ the container's first process (init) ──▶ the command ──▶ …
         └ ends when it runs              └ both below the warden, their subreaper

| what | how it is known |
|---|---|
| which processes are the command's | init, whose number the hook wrote down (../hook.py), and all below it; the kernel ends them all with it |
| that podman could not start it | `podman run` ends with another code than 0 |
| that it has ended | init's descriptor; its code is asked of podman |
| its memory, its processes | measured as any command's, and kept by the kernel, whose refusals its control group counts |
"""

import contextlib
import os
import select
import signal
import time

import asking
import cgroup
import processes
from watching import Warden

SIGNALLED = range(129, 193)
"""Codes by which a container's init says that a signal ended the command."""


class Contained(Warden):
    """The spec's `container`: `pid` (a file that is there before the command begins: init's number, and its /proc/PID/cgroup), `wait` and `remove`
    (commands: the exit code on stdout; the container away, whatever state it is in)."""

    def __init__(self, spec: dict) -> None:
        super().__init__(spec)
        self._podman = spec["container"]
        self._init, self._group = 0, None
        self._refused: str | None = ""
        """The bound that the kernel kept; None: the group was gone before it was looked at."""
        self._container_code = -signal.SIGKILL

    def run(self) -> dict:
        said = super().run()
        if said["how"] == "exited" and self._status:
            return {"how": "not_started", "detail": said["tail"]}
        return said

    def _confine(self) -> None:
        """Podman's client is bounded by nothing: the container is."""
        processes.bear(self._spec["mark"])
        self._die_with_parent()

    def _has_ended(self) -> bool:
        self._reap()
        if not self._init:
            self._enter()
        if self._child:
            return False
        return bool(self._status) or self._is_over()

    def _enter(self) -> None:
        with contextlib.suppress(OSError), open(self._podman["pid"]) as file:
            number, _, lines = file.read().partition("\n")
            self._init, self._group = int(number), cgroup.Group(lines)
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(self._init)
                if processes.bears(self._init, self._spec["mark"]):  # else it is another one, of the same number
                    self._ends.append(descriptor)

    def _is_over(self) -> bool:
        """Also where it was over before it was looked at."""
        return not self._ends or bool(select.select(self._ends, [], [], 0)[0])

    def _find(self) -> dict[int, processes.Process]:
        """Without init, which hands signals on."""
        return {} if self._is_over() else processes.below(self._init)

    def _used_cpu_s(self, alive: dict[int, processes.Process]) -> float:
        used_s = self._group.cpu_s() if self._group is not None else None
        return sum(process.cpu_s for process in alive.values()) if used_s is None else used_s

    def _measure(self, passed_s: float) -> str | None:
        exceeded = super()._measure(passed_s)
        if self._group is not None:
            self._refused = self._group.refused()
        return self._refused or exceeded

    def _code(self) -> int:
        code = self._container_code
        return 128 - code if code in SIGNALLED else code

    def _is_anybody_left(self) -> bool:
        self._reap()
        return not self._is_over()

    def _end_all(self) -> int:
        self._wait_for_client()
        if not self._is_over():
            self._ask_to_end()
        until_s = time.monotonic() + processes.KILL_S
        while self._is_anybody_left() and time.monotonic() < until_s:
            processes.send(self._init, signal.SIGKILL)
            time.sleep(0.01)
        left = len(self._find())
        if self._init:
            self._container_code = self._ask_code()
        if not self._how:
            is_killed_unseen = self._refused is None and self._code() == -signal.SIGKILL
            self._how = "memory" if is_killed_unseen else self._refused or ""
        return left + (not asking.removed(self._podman["remove"], self._spec["environment"])) + self._end_podman()

    def _wait_for_client(self) -> None:
        """Who is killed while it makes a container leaves half of one."""
        until_s = time.monotonic() + asking.PODMAN_S
        while not self._has_ended() and self._child and time.monotonic() < until_s:
            time.sleep(0.01)

    def _ask_code(self) -> int:
        said = asking.asked(self._podman["wait"], self._spec["environment"])[1].strip()
        return int(said) if said.isdigit() else -signal.SIGKILL

    def _end_podman(self) -> int:
        """Its monitor goes by itself when the container has gone; nobody of them is waited for longer than for a command."""
        until_s, kill_s = time.monotonic() + 2 * processes.KILL_S, time.monotonic() + processes.KILL_S
        while self._reap() and time.monotonic() < until_s:
            if time.monotonic() > kill_s:
                processes.kill(processes.below(self._pid))
            time.sleep(0.01)
        return len(processes.below(self._pid))
