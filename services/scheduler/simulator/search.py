"""An evolutionary search over the calibration's parameters: a small population, children near their parents, the best survive."""

import math
import random
import sys
import time
from itertools import count

from gyre.errors import GyreError
from services.scheduler.simulator import parameters
from services.scheduler.simulator.observations import loss_of
from services.scheduler.simulator.parameters import Point
from services.scheduler.simulator.sweep import PROCESSES
from services.scheduler.simulator.workers import Workers

POPULATION = 20
RANDOM_POINTS = 40
"""Drawn at the start, beside the calibrations to go on from."""
SPREADS = (0.2, 0.08, 0.03, 0.01)
"""Sizes of a step, as shares of a range; each child draws one."""
FRESH_SHARE = 0.1
"""Children that are drawn anew, so that the search does not end in the first valley."""
GIVE_UP_AT, GIVE_UP_FACTOR = 0.35, 1.3
"""A point is given up as soon as it is sure to be above this loss; once the population is full, so much above its worst."""
SAY_EVERY_S = 10.0


def search(
    minutes: float, seed: int, seeds: range, held_out: frozenset[str], starts: list[Point], given: Point
) -> tuple[Point, float, int]:
    """(best point, its loss, points tried) after so many minutes, from `starts` and random points. Every point meets the same `seeds`.

    As many points are tried at a time as there are processes, and a child is made whenever one is done, so two searches of one seed differ as
    the machine does. `given` is not free.
    """
    rng = random.Random(f"calibration {seed}")
    begun_s = said_s = time.monotonic()
    end_s = begun_s + 60.0 * minutes
    first = [parameters.draw(rng, given) for _ in range(RANDOM_POINTS)] + [start | given for start in starts[::-1]]
    population: list[tuple[float, Point]] = []
    tried = 0
    with Workers(PROCESSES) as workers:
        running: dict[int, Point] = {}
        numbers = count()
        while time.monotonic() < end_s or not population:
            while workers.room:
                number = next(numbers)
                running[number] = point = first.pop() if first else _child(population, rng, given)
                workers.give(number, _loss, point, seeds, held_out, _limit(population))
            for number, loss in workers.done():
                tried += 1
                population = _survivors([*population, (loss, running.pop(number))])
            if time.monotonic() - said_s > SAY_EVERY_S:
                said_s = time.monotonic()
                _say(population, tried, end_s - said_s)
    return population[0][1], population[0][0], tried


def _limit(population: list[tuple[float, Point]]) -> float:
    return min(GIVE_UP_AT, GIVE_UP_FACTOR * population[-1][0]) if len(population) == POPULATION else GIVE_UP_AT


def _survivors(pairs: list[tuple[float, Point]]) -> list[tuple[float, Point]]:
    """The best, no point twice."""
    found: list[tuple[float, Point]] = []
    for pair in sorted(pairs, key=lambda pair: pair[0]):
        if pair[0] < math.inf and all(pair[1] != other for _, other in found):
            found.append(pair)
    return found[:POPULATION]


def _child(population: list[tuple[float, Point]], rng: random.Random, given: Point) -> Point:
    """Near a survivor, better ones more often; sometimes a mixture of two."""
    if rng.random() < FRESH_SHARE or not population:
        return parameters.draw(rng, given)
    parent = population[int(len(population) * rng.random() ** 2)][1]
    if rng.random() < 0.3:
        other = rng.choice(population)[1]
        mixed = {name: rng.choice((parent[name], other[name])) for name in parent}
        parent = mixed if parameters.is_possible(mixed) else parent
    return parameters.near(parent, rng.choice(SPREADS), rng, given)


def _loss(point: Point, seeds: range, held_out: frozenset[str], give_up_at: float) -> float:
    try:
        return loss_of(parameters.calibration_of(point), seeds, held_out, give_up_at)
    except GyreError:  # a knob that this cluster cannot have
        return math.inf


def _say(population: list[tuple[float, Point]], tried: int, left_s: float) -> None:
    best = f"best {population[0][0]:.4f}, worst kept {population[-1][0]:.4f}" if population else "nothing possible yet"
    print(f"tried {tried}, {best}, {left_s:.0f} s left", file=sys.stderr, flush=True)
