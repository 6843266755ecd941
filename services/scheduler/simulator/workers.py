"""A few forked processes that compute side by side, and are gone when their work is over or given up, or when this process is, however it ended.

A pool of the standard library is neither: who leaves it waits for what still runs, and it lives on when its parent is killed.
"""

import os
import signal
import traceback
from collections.abc import Callable, Hashable
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import Any

from gyre.errors import GyreError, InvariantBroken, Unavailable
from gyre.supervisor.child import die_with_parent

_fork = get_context("fork")


class Workers:
    """`give` a job where there is `room`, take what is `done`. Leaving it kills every process, whatever it was doing."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._children: dict[Connection, Any] = {}
        self._free: list[Connection] = []
        self._asked: dict[Connection, Hashable] = {}

    def __enter__(self) -> "Workers":
        for _ in range(self._processes):
            ours, theirs = _fork.Pipe()
            child = _fork.Process(target=_serve, args=(theirs, os.getpid()), daemon=True)
            child.start()
            theirs.close()
            self._children[ours] = child
            self._free.append(ours)
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        for ours, child in self._children.items():
            child.join()
            ours.close()

    @property
    def room(self) -> int:
        """Processes with nothing to do."""
        return len(self._free)

    def give(self, name: Hashable, work: Callable[..., Any], *arguments: Any) -> None:
        """There is room."""
        ours = self._free.pop()
        self._asked[ours] = name
        ours.send((work, arguments))

    def done(self, wait_s: float | None = None) -> list[tuple[Any, Any]]:
        """(name, result) of the jobs that have ended since; waits for one, at most `wait_s` seconds. Raises what a job has raised, and
        Unavailable when its process was killed."""
        found = []
        for ours in connection.wait(list(self._asked), wait_s):
            assert isinstance(ours, Connection)
            try:
                is_done, answer = ours.recv()
            except (EOFError, ConnectionError):
                raise Unavailable(
                    "a simulating process was killed; where memory has run out, simulate fewer executions or steps"
                ) from None
            if not is_done:
                raise answer
            found.append((self._asked.pop(ours), answer))
            self._free.append(ours)
        return found


def _serve(theirs: Connection, parent: int) -> None:
    """The child: one job after the other until it is killed. What Ctrl-C on a terminal means is the parent's to say."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    if os.getppid() != parent:  # it was gone before this could be said
        os._exit(1)
    while True:
        work, arguments = theirs.recv()
        theirs.send(_answer(work, arguments))


def _answer(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """(whether it was done, result or error); an error that is none of ours travels as its traceback."""
    try:
        return True, work(*arguments)
    except GyreError as error:
        return False, error
    except Exception:
        return False, InvariantBroken(f"a simulation failed:\n{traceback.format_exc()}")
