"""An evolutionary search over the calibration's parameters: a small population, children near their parents, the best survive."""

import math
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from gyre.errors import GyreError
from services.scheduler.simulator import parameters
from services.scheduler.simulator.observations import loss_of
from services.scheduler.simulator.parameters import Point
from services.scheduler.simulator.sweep import PROCESSES

POPULATION = 16
CHILDREN = 24
SPREADS = (0.2, 0.08, 0.03, 0.01)
"""Sizes of a step, as shares of a range; each child draws one."""
FRESH_SHARE = 0.1
"""Children that are drawn anew, so that the search does not end in the first valley."""
GIVE_UP_FACTOR = 1.5
"""A child is given up when it is sure to be so much worse than the worst survivor."""


def search(
    minutes: float, seed: int, seeds: range, held_out: frozenset[str], starts: list[Point]
) -> tuple[Point, float, int]:
    """(best point, its loss, points tried) after so many minutes, from `starts` and random points. Every point meets the same `seeds`."""
    rng = random.Random(f"calibration {seed}")
    end_s = time.monotonic() + 60.0 * minutes
    children = starts + [parameters.draw(rng) for _ in range(2 * CHILDREN)]
    population: list[tuple[float, Point]] = []
    tried = 0
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        while True:
            give_up_at = GIVE_UP_FACTOR * population[-1][0] if len(population) == POPULATION else math.inf
            losses = pool.map(_loss, [(child, seeds, held_out, give_up_at) for child in children])
            tried += len(children)
            population = _survivors(
                population + [pair for pair in zip(losses, children, strict=True) if pair[0] < math.inf]
            )
            _say(population, tried, end_s - time.monotonic())
            if time.monotonic() > end_s:
                return population[0][1], population[0][0], tried
            children = [_child(population, rng) for _ in range(CHILDREN)]


def _survivors(pairs: list[tuple[float, Point]]) -> list[tuple[float, Point]]:
    """The best, no point twice."""
    found: list[tuple[float, Point]] = []
    for pair in sorted(pairs, key=lambda pair: pair[0]):
        if all(pair[1] != other for _, other in found):
            found.append(pair)
    return found[:POPULATION]


def _child(population: list[tuple[float, Point]], rng: random.Random) -> Point:
    """Near a survivor, better ones more often; sometimes a mixture of two."""
    if rng.random() < FRESH_SHARE:
        return parameters.draw(rng)
    parent = population[int(len(population) * rng.random() ** 2)][1]
    if rng.random() < 0.3:
        other = rng.choice(population)[1]
        mixed = {name: rng.choice((parent[name], other[name])) for name in parent}
        parent = mixed if parameters.is_possible(mixed) else parent
    return parameters.near(parent, rng.choice(SPREADS), rng)


def _loss(job: tuple[Point, range, frozenset[str], float]) -> float:
    point, seeds, held_out, give_up_at = job
    try:
        return loss_of(parameters.calibration_of(point), seeds, held_out, give_up_at)
    except GyreError:  # a knob that this cluster cannot have
        return math.inf


def _say(population: list[tuple[float, Point]], tried: int, left_s: float) -> None:
    print(
        f"tried {tried}, best {population[0][0]:.4f}, worst kept {population[-1][0]:.4f}, {max(0.0, left_s):.0f} s left",
        file=sys.stderr,
        flush=True,
    )
