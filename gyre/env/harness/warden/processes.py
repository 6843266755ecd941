"""The processes of one execution, told from all others, and an end of all of them (Linux).

| told by | what that is | where it fails |
|---|---|---|
| descent | below the warden, which is the subreaper of them all | when the warden is gone |
| mark | RLIMIT_LOCKS, which the kernel does not enforce: children inherit it, `exec` keeps it, nobody but root raises it | it may be lowered |

Nobody outruns the end: all are stopped first, and what was begun meanwhile is looked for where it must be, at the newest process numbers.
"""

import contextlib
import os
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

RLIMIT_LOCKS = 10
MARKS = 2**62
CHASE_S = 0.05
"""A process that forks and ends is never there when the list of all is read; its child's number is the newest, and is looked at for so long."""
STOPPED = "Tt"
"""States of a process that was stopped, by a signal or by whoever traces it."""
LOOKS = 3
"""Without a finding, until there is nobody."""
KILL_S = 8.0
THREADS_PER_PROCESS = 32
"""For the kernel, which counts threads."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    parent: int
    group: int
    state: str
    cpu_s: float
    """Of it and of those it waited for."""
    resident_bytes: int


def everything() -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
                cpu_s = sum(map(int, fields[11:15])) / TICKS_PER_S
                found[int(name)] = Process(
                    int(fields[1]), int(fields[2]), fields[0], cpu_s, int(fields[21]) * PAGE_BYTES
                )
    return found


def below(root: int) -> dict[int, Process]:
    """Descendants of `root`, those that have ended and are not waited for left out."""
    known, children = everything(), defaultdict(list)
    for pid, process in known.items():
        children[process.parent].append(pid)
    todo, found = [root], {}
    while todo:
        for pid in children.pop(todo.pop(), ()):
            todo.append(pid)
            if known[pid].state != "Z":
                found[pid] = known[pid]
    return found


def new_mark() -> int:
    """Below that of this process, which may bear one itself."""
    hard = resource.getrlimit(RLIMIT_LOCKS)[1]
    most = MARKS if hard == resource.RLIM_INFINITY or hard > MARKS else hard
    return int.from_bytes(os.urandom(8)) % max(1, most)


def bear(mark: int) -> None:
    """This process, and whatever it becomes and starts. A kernel that is none (gVisor) may refuse; then there is descent alone."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(RLIMIT_LOCKS, (mark, mark))


def bears(pid: int, mark: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", "rb") as file:
        for line in file:
            if line.startswith(b"Max file locks"):
                return line.split()[4] == b"%d" % mark
    return False


def marked(mark: int) -> dict[int, Process]:
    return {pid: process for pid, process in everything().items() if process.state != "Z" and bears(pid, mark)}


def freeze(find: Callable[[], dict[int, Process]], mark: int, until_s: float) -> dict[int, Process]:
    """Stop all that `find` finds, again until it finds none that goes on or `until_s` (time.monotonic) has come; what it found last.

    Who waits in the kernel (D) is told once: it stops before it does anything else, but only once what it waits for is there. Whoever starts a
    program by vfork waits so for its child, which may be stopped already."""
    told: set[int] = set()
    while True:
        found = find()
        going = [pid for pid, of in found.items() if of.state not in STOPPED and (of.state != "D" or pid not in told)]
        # A group is stopped in one moment, with whatever joins it in that.
        for group in {found[pid].group for pid in going} - {0, 1, os.getpgrp()}:
            send(-group, signal.SIGSTOP)
        for pid in going:
            send(pid, signal.SIGSTOP)
        told.update(going)
        _chase(mark, signal.SIGSTOP)
        if not going or time.monotonic() > until_s:
            return found


def end_marked(mark: int) -> int:
    """Kill all that bear `mark`, whoever's children they are; how many are left all the same."""
    until_s, looks, found, orphans = time.monotonic() + KILL_S, 0, {}, set()
    while looks < LOOKS and time.monotonic() < until_s:
        found = freeze(lambda: marked(mark), mark, until_s)
        kill(found)
        looks = 0 if found else looks + 1
        orphans |= {pid for pid, process in found.items() if process.parent == os.getpid()}
    for pid in orphans:  # of the first process of a container, which takes them in
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return len(marked(mark)) if found else 0


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _chase(mark: int, number: int) -> None:
    """Numbers are given out in their order; where the newest is not told, there is no chase."""
    until_s, last = time.monotonic() + CHASE_S, 0
    with contextlib.suppress(OSError, IndexError, ValueError), open("/proc/loadavg", "rb") as file:
        while time.monotonic() < until_s:
            newest = int(os.pread(file.fileno(), 128, 0).split()[4])
            if newest != last and bears(newest, mark):
                send(newest, number)
            last = newest
