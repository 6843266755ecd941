"""Many runs over a few processes, elastic_plus with its planner, with progress on stderr."""

import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from services.scheduler.planner import planner_of
from services.scheduler.simulator.measures import Result
from services.scheduler.simulator.run import simulate
from services.scheduler.simulator.spec import Spec

PROCESSES = min(2, os.cpu_count() or 1)
"""More would not be neighbourly on a machine that trains beside it; the answer does not depend on it."""
REDRAW_S = 0.2

Job = tuple[Hashable, Spec, int]
"""(name, specification, seed)"""


def run_all(
    jobs: Iterable[Job], say: Callable[[int, int], None] | None = None, processes: int = PROCESSES
) -> dict[tuple[Hashable, int], Result]:
    """(name, seed) → result of each job; the same jobs give the same answer with any number of processes."""
    jobs = list(jobs)
    found: dict[tuple[Hashable, int], Result] = {}
    if processes <= 1 or len(jobs) <= 2:
        for number, job in enumerate(jobs, 1):
            found[job[0], job[2]] = _run(job)
            if say:
                say(number, len(jobs))
        return found
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        chunk = max(1, min(16, len(jobs) // (8 * processes)))
        for number, (job, result) in enumerate(zip(jobs, pool.map(_run, jobs, chunksize=chunk), strict=True), 1):
            found[job[0], job[2]] = result
            if say:
                say(number, len(jobs))
    return found


def _run(job: Job) -> Result:
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
        left_s = (now_s - started_s) / done * (all_ - done)
        text = (
            f"{what}: {done} of {all_} runs, {left_s:.0f} s left"
            if done < all_
            else f"{what}: {all_} runs in {now_s - started_s:.1f} s"
        )
        print(
            f"\r{text:<70}" if is_terminal else text,
            end="\n" if done == all_ or not is_terminal else "",
            file=sys.stderr,
            flush=True,
        )

    return say
