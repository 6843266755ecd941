"""A command, watched while it runs and ended with all that it started (the script is __main__.py)."""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import processes
import walk

TICK_S = 1.0
TAIL_BYTES = 64 * 1024
WALK_SHARE = 0.02
"""Of the time may go into measuring folders."""
WALK_SLICE_S = 0.005
"""And so much at once: whoever asks it to end is not kept waiting by a million files."""
EXECUTIONS_PER_USER = 16
"""For the kernel, which counts threads, and those of all of a user's executions together: of these only their sum is bounded, so that one does not
take another's. How many they are is not known here; beyond so many they share that sum."""
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class Warden:
    """Runs it and answers how it ended."""

    def __init__(self, spec: dict) -> None:
        self._spec, self._bounds, self._pid = spec, spec["bounds"], os.getpid()
        self._command: subprocess.Popen | None = None
        """Kept: thrown away it would wait for its process, and take the status with it."""
        self._child, self._status = 0, 0
        """Its process, 0 once it has ended with that status."""
        self._tail, self._output_bytes = b"", 0
        self._cpu_s, self._peak_bytes, self._disk_bytes = 0.0, 0, 0
        self._walk: Iterator[int] | None = None
        self._walk_bytes, self._walk_s, self._next_walk_s = 0, 0.0, 0.0
        self._how = ""
        self._ends: list[int] = []
        """Descriptors that are readable when it has ended."""
        self.is_orphan = False
        """Whoever started it is gone, and will not remove its folder."""

    def run(self) -> dict:
        begun_s = time.monotonic()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            self._command = self._start(write_end)
            self._child = self._command.pid
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = getattr(error, "strerror", None) or error
            return {"how": "not_started", "detail": f"{self._spec['command'][0]}: {why}"}
        finally:
            os.close(write_end)
        try:
            self._watch(read_end, begun_s)
            self._measure(0.0)
        finally:
            left = self._end_all()
        self._read(read_end)
        return {
            "how": self._how or "exited", "code": self._code(), "wall_s": time.monotonic() - begun_s,
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
        processes.bear(self._spec["mark"])
        largest = self._bounds["disk_bytes"]
        bounds = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, largest)]
        user = self._spec["user"]
        if user is not None:
            threads = self._bounds["processes"] * processes.THREADS_PER_PROCESS * EXECUTIONS_PER_USER
            bounds.append((resource.RLIMIT_NPROC, threads))
        for kind, bound in bounds:
            if (ours := resource.getrlimit(kind)[1]) != resource.RLIM_INFINITY:
                bound = min(bound, ours)  # more than it has itself a process may not give
            resource.setrlimit(kind, (bound, bound))
        os.umask(0o022)
        if user is not None:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        self._die_with_parent()  # last: another user would take it away

    def _die_with_parent(self) -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(1)

    def _watch(self, read_end: int, begun_s: float) -> None:
        """Until the command has ended or is to be ended."""
        next_tick_s = 0.0
        while True:
            ready, _, _ = select.select([read_end, 0, *self._ends], [], [], 0.05)
            if read_end in ready and not self._read(read_end):
                time.sleep(0.02)  # all ends of the pipe are closed: only the child's end is waited for
            if 0 in ready and not self._go_on():
                return
            if self._has_ended():
                return
            self._walk_on()
            now_s = time.monotonic()
            if now_s >= next_tick_s or self._output_bytes > self._bounds["output_bytes"]:
                next_tick_s = now_s + TICK_S
                if (exceeded := self._measure(now_s - begun_s)) is not None:
                    self._how = exceeded
                    return

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

    def _reap(self) -> bool:
        """Wait for whoever has ended; whether anybody is left. No child is no descendant: what loses its parent becomes a child of ours."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._child:
                    self._child, self._status = 0, status
        except ChildProcessError:
            self._child = 0
            return False

    def _has_ended(self) -> bool:
        self._reap()
        return not self._child

    def _code(self) -> int:
        """Once it has ended."""
        return os.waitstatus_to_exitcode(self._status)

    def _find(self) -> dict[int, processes.Process]:
        """All that is counted, and is to end."""
        return processes.below(self._pid)

    def _used_cpu_s(self, alive: dict[int, processes.Process]) -> float:
        waited_for = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(process.cpu_s for process in alive.values()) + waited_for.ru_utime + waited_for.ru_stime

    def _walk_on(self) -> None:
        """Measure the folders a little further. What is found beyond the last sum counts at once, what is found to be less at the end."""
        begun_s = time.monotonic()
        if self._walk is None:
            if begun_s < self._next_walk_s:
                return
            self._walk, self._walk_bytes, self._walk_s = walk.bytes_below(self._spec["folders"]), 0, 0.0
        is_over = True
        for sum_bytes in self._walk:
            self._walk_bytes = sum_bytes
            if time.monotonic() - begun_s > WALK_SLICE_S:
                is_over = False
                break
        now_s = time.monotonic()
        self._walk_s += now_s - begun_s
        self._disk_bytes = max(self._disk_bytes, self._walk_bytes)
        if is_over:
            self._walk, self._disk_bytes = None, self._walk_bytes
            self._next_walk_s = now_s + max(TICK_S, self._walk_s / WALK_SHARE)

    def _measure(self, passed_s: float) -> str | None:
        """What is used, told; the bound that it exceeds."""
        alive = self._find()
        self._cpu_s = max(self._cpu_s, self._used_cpu_s(alive))
        memory_bytes = sum(process.resident_bytes for process in alive.values())
        self._peak_bytes = max(self._peak_bytes, memory_bytes)
        used = {
            "cpu_s": self._cpu_s, "memory_bytes": memory_bytes, "disk_bytes": self._disk_bytes, "processes": len(alive),
            "output_bytes": self._output_bytes,
        }  # fmt: skip
        self._say(used)
        used["wall_s"] = passed_s
        return next((name.partition("_")[0] for name, value in used.items() if value > self._bounds[name]), None)

    def _end_all(self) -> int:
        """Ask all to end, then kill them; no grace for what exceeds a bound. How many are left all the same."""
        self._ask_to_end()
        until_s = time.monotonic() + processes.KILL_S
        while self._reap() and time.monotonic() < until_s:
            processes.kill(processes.freeze(self._find, self._spec["mark"], until_s))
            time.sleep(0.01)
        return len(self._find()) if self._reap() else 0

    def _ask_to_end(self) -> None:
        until_s = time.monotonic() + self._spec["grace_s"]
        for pid in self._find():
            processes.send(pid, signal.SIGTERM)
        while self._is_anybody_left() and time.monotonic() < until_s and self._measure(0.0) is None:
            time.sleep(0.05)

    def _is_anybody_left(self) -> bool:
        return self._reap()

    @staticmethod
    def _say(what: dict) -> None:
        with contextlib.suppress(OSError):
            print(json.dumps(what), flush=True)
