"""One command and all that it starts, under bounds, as a script of its own: only the standard library, nothing of Gyre.

    stdin    one line of JSON (command, directory, environment, bounds, grace_s, user, root), then `stop` to end it. Its end does too, and root goes
    stdout   a line of JSON each second (what is used), the last one says how it ended

What it starts may leave its session and its parent; as the subreaper of them all this process still finds each (Linux). So nothing is left when
it ends, whatever ended it, the death of whoever started it included.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

TICK_S = 1.0
TAIL_BYTES = 64 * 1024
WALK_SHARE = 0.02
"""Of the time may go into measuring folders."""
KILLS_MAX = 200
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_libc = ctypes.CDLL(None, use_errno=True)


def processes() -> dict[int, tuple[int, str, float, int]]:
    """Process → (parent, state, CPU seconds of it and of those it waited for, resident bytes)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                cpu_s = sum(map(int, fields[11:15])) / TICKS_PER_S
                found[int(name)] = int(fields[1]), fields[0], cpu_s, int(fields[21]) * PAGE_BYTES
    return found


def descendants() -> dict[int, tuple[int, str, float, int]]:
    """Of this process, those that have ended and are not waited for left out."""
    everything, mine = processes(), {os.getpid()}
    is_growing = True
    while is_growing:
        new = {pid for pid, (parent, *_) in everything.items() if parent in mine} - mine
        mine |= new
        is_growing = bool(new)
    return {
        pid: everything[pid] for pid in mine if pid in everything and pid != os.getpid() and everything[pid][1] != "Z"
    }


def bytes_below(folder: str) -> int:
    """Of files, as the disk holds them; what vanishes meanwhile is not counted."""
    total, todo = 0, [folder]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


class Warden:
    """Runs it and answers how it ended."""

    def __init__(self, spec: dict) -> None:
        self._spec, self._bounds = spec, spec["bounds"]
        self._tail, self._output_bytes = b"", 0
        self._cpu_s, self._peak_bytes, self._disk_bytes = 0.0, 0, 0
        self._next_walk_s = 0.0
        self._how = ""
        self.is_orphan = False
        """Whoever started it is gone, and will not remove its folder."""

    def run(self) -> dict:
        begun_s = time.monotonic()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            child = self._start(write_end)
        except OSError as error:
            return {"how": "not_started", "detail": f"{self._spec['command'][0]}: {error.strerror}"}
        finally:
            os.close(write_end)
        status = None
        try:
            status = self._watch(child.pid, read_end, begun_s)
            self._measure(0.0)
        finally:
            left = self._end_all()
        status = os.waitpid(child.pid, 0)[1] if status is None else status
        self._read(read_end)
        return {
            "how": self._how or "exited", "code": os.waitstatus_to_exitcode(status), "wall_s": time.monotonic() - begun_s,
            "tail": self._tail.decode(errors="replace"), "cpu_s": self._cpu_s, "memory_bytes_max": self._peak_bytes,
            "disk_bytes": self._disk_bytes, "left": left,
        }  # fmt: skip

    def _start(self, write_end: int) -> subprocess.Popen:
        return subprocess.Popen(
            self._spec["command"], cwd=self._spec["directory"], env=self._spec["environment"], stdin=subprocess.DEVNULL,
            stdout=write_end, stderr=write_end, start_new_session=True, preexec_fn=self._confine,
        )  # fmt: skip

    def _confine(self) -> None:
        """In the child."""
        largest = self._bounds["disk_bytes"]
        for kind, bound in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, largest)):
            resource.setrlimit(kind, (bound, bound))
        os.umask(0o022)
        if (user := self._spec["user"]) is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # last: another user would take it away

    def _watch(self, child: int, read_end: int, begun_s: float) -> int | None:
        """Until the command has ended (its status) or is to be ended (None)."""
        next_tick_s = 0.0
        while True:
            # `waitid` leaves the child to be waited for, so that its number stays its own.
            ready, _, _ = select.select([read_end, 0], [], [], 0.05)
            if read_end in ready and not self._read(read_end):
                time.sleep(0.02)  # all ends of the pipe are closed: only the child's end is waited for
            if 0 in ready and not self._go_on():
                return None
            if (status := self._reap(child)) is not None:
                return status
            now_s = time.monotonic()
            if now_s >= next_tick_s:
                next_tick_s = now_s + TICK_S
                if (exceeded := self._measure(now_s - begun_s)) is not None:
                    self._how = exceeded
                    return None
            if self._output_bytes > self._bounds["output_bytes"]:
                self._how = "output"
                return None

    def _read(self, read_end: int) -> bool:
        """False at the end of the output."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(read_end, 65_536):
                self._output_bytes += len(data)
                self._tail = (self._tail + data)[-TAIL_BYTES:]
                if self._output_bytes > self._bounds["output_bytes"]:
                    return True
            return False
        return True

    def _go_on(self) -> bool:
        said = os.read(0, 4096)
        if not said or b"stop" in said:
            self._how, self.is_orphan = "stopped", not said
            return False
        return True

    @staticmethod
    def _reap(child: int) -> int | None:
        """Wait for whoever has ended: the command's status if it has."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return ended[1]
        return None

    def _measure(self, passed_s: float) -> str | None:
        """What is used, told; the bound that it exceeds."""
        alive = descendants()
        waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = sum(cpu_s for _, _, cpu_s, _ in alive.values()) + waited_for.ru_utime + waited_for.ru_stime
        self._cpu_s = max(self._cpu_s, cpu_s)
        memory_bytes = sum(resident for *_, resident in alive.values())
        self._peak_bytes = max(self._peak_bytes, memory_bytes)
        if (began_s := time.monotonic()) >= self._next_walk_s:
            self._disk_bytes = sum(map(bytes_below, self._spec["folders"]))
            took_s = time.monotonic() - began_s
            self._next_walk_s = began_s + max(TICK_S, took_s / WALK_SHARE)
        used = {
            "cpu_s": self._cpu_s,
            "memory_bytes": memory_bytes,
            "disk_bytes": self._disk_bytes,
            "processes": len(alive),
        }
        self._say({**used, "output_bytes": self._output_bytes})
        used["wall_s"] = passed_s
        return next((name.partition("_")[0] for name, value in used.items() if value > self._bounds[name]), None)

    def _end_all(self) -> int:
        """Ask all to end, then kill until there is nobody; how many are left all the same."""
        deadline_s = time.monotonic() + self._spec["grace_s"]
        for pid in (alive := descendants()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        while alive and time.monotonic() < deadline_s:
            time.sleep(0.05)
            alive = descendants()
        for _ in range(KILLS_MAX):
            if not (alive := descendants()):
                break
            for pid in alive:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return len(alive)

    @staticmethod
    def _say(what: dict) -> None:
        with contextlib.suppress(OSError):
            print(json.dumps(what), flush=True)


def main() -> None:
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the command would inherit
    line = b""
    while not line.endswith(b"\n"):
        if not (byte := os.read(0, 1)):
            return
        line += byte
    spec = json.loads(line)
    warden = Warden(spec)
    said = warden.run()
    if warden.is_orphan:
        shutil.rmtree(spec["root"], ignore_errors=True)
    with contextlib.suppress(OSError):
        print(json.dumps(said), flush=True)
    sys.stdout = None


if __name__ == "__main__":
    main()
