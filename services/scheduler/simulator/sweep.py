"""Many runs over a few processes, elastic_plus with its planner, with progress on stderr."""

import os
import signal
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager

from gyre.errors import InvalidInput
from services.scheduler.planner import planner_of
from services.scheduler.simulator.measures import Result
from services.scheduler.simulator.run import simulate
from services.scheduler.simulator.spec import Spec
from services.scheduler.simulator.workers import Workers

PROCESSES = min(2, os.cpu_count() or 1)
"""More would not be neighbourly on a machine that trains beside it; the answer does not depend on it."""
REDRAW_S = 0.2

Job = tuple[Hashable, Spec, int]
"""(name, specification, seed)"""


def run_all(
    jobs: Iterable[Job], say: Callable[[int, int], None] | None = None, processes: int = PROCESSES, limit_s: float = 0.0
) -> dict[tuple[Hashable, int], Result]:
    """(name, seed) → result of each job; the same jobs give the same answer with any number of processes.

    `say` is told (done, all) all the while. Raises InvalidInput when one job has taken `limit_s` seconds; 0: as long as it takes. Left by any
    error or Ctrl-C, or by this process's death, nothing goes on.
    """
    jobs = list(jobs)
    found: dict[tuple[Hashable, int], Result] = {}
    if processes <= 1 or (len(jobs) <= 2 and say is None):
        return {(job[0], job[2]): _run(job, limit_s) for job in jobs}
    with Workers(processes) as workers:
        todo = iter(jobs)
        while len(found) < len(jobs):
            while workers.room and (job := next(todo, None)) is not None:
                workers.give((job[0], job[2]), _run, job, limit_s)
            found.update(workers.done(REDRAW_S))
            if say:
                say(len(found), len(jobs))
    return found


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Raises InvalidInput in the middle of what has not ended after so many seconds; 0: it may take any time. For a process's main thread."""

    def over(signum: int, frame: object) -> None:
        raise InvalidInput(
            f"one run was not done within {limit_s:g} s: simulate fewer steps or executions, or allow more with --limit"
        )

    before = signal.signal(signal.SIGALRM, over) if limit_s else None
    try:
        if limit_s:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
        yield
    finally:
        if limit_s:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)


def _run(job: Job, limit_s: float) -> Result:
    with within(limit_s):
        return simulate(job[1], job[2], planner_of(job[1]))


def progress(what: str) -> Callable[[int, int], None]:
    """One line on stderr that is redrawn; plain lines now and then where stderr is no terminal."""
    started_s = last_s = time.monotonic()
    is_terminal = sys.stderr.isatty()

    def say(done: int, all_: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if done < all_ and now_s - last_s < (REDRAW_S if is_terminal else 10.0):
            return
        last_s = now_s
        passed_s = now_s - started_s
        if done == all_:
            text = f"{what}: {all_} runs in {passed_s:.1f} s"
        elif done:
            text = f"{what}: {done} of {all_} runs, {passed_s / done * (all_ - done):.0f} s left"
        else:
            text = f"{what}: the first of {all_} runs, for {passed_s:.0f} s so far"
        print(
            f"\r{text:<70}" if is_terminal else text,
            end="\n" if done == all_ or not is_terminal else "",
            file=sys.stderr,
            flush=True,
        )

    return say
