"""Which knobs are best: simulate candidates, few steps for many and many for few; refuse what is staler; stay unless the gain is clear.

    screen     every (μ, φ) by both role rules        one seed, SCREEN_STEPS
    release    the best SHAPES_KEPT at other ρ, as long as that helps        the same seed
    final      the best FINALISTS, what is configured and what is in force   FINAL_SEEDS fresh ones, FINAL_STEPS; after the first seed those
               that are behind by GIVEN_UP_SHARE go no further

Within a stage all meet the same groups, so differences are not drawn by lot; the last stage has seeds of its own, so that the winner of many
is not taken at its luckiest word.

The promise is a mean. By `plan_measure = "dispatch"` it is the law's φ + (μ − 1)/2, the same for all shapes. By "token" it is what the configured
knobs show in tokens: where weights reach running executions their tokens are fresher than their dispatch, so φ is raised until both are equal, once
for every shape, again for another ρ, and on the final seeds.
"""

import statistics

import msgspec

from gyre.errors import InvariantBroken
from services.scheduler.core import Knobs
from services.scheduler.planner import knobs as knobs_
from services.scheduler.planner.question import Question
from services.scheduler.simulator import Result, simulate

SCREEN_STEPS = 24
FINAL_STEPS = 60
WARMUP_STEPS = 6
SHAPES_KEPT = 3
FINALISTS = 3
FINAL_SEEDS = 3
GIVEN_UP_SHARE = 0.02
"""Several times what two runs that meet the same groups differ by for no reason."""
EXECUTIONS_MAX = 40_000
"""Of one plan, two to four seconds; large batches are simulated for fewer steps, STEPS_MIN at least."""
STEPS_MIN = 10
GAIN_MIN = 0.008
"""Against what is configured: below this the gain is within what a simulation from a few hundred groups can be wrong by."""
CHANGE_MIN = 0.004
"""Against what is in force: below this nothing is changed."""
STALENESS_SLACK = 0.02
UNUSED_MAX = 0.01
"""Of the promised token staleness, in the final runs: a fifth of a per cent of time."""
TOKEN_SLOPE = 0.85
"""Token staleness that a step of φ adds, as a first guess; then measured."""
DEEPENINGS = 2


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the search found."""

    knobs: Knobs
    gain: float
    """Predicted share of time saved against the configured knobs under the waterlevel rule."""
    step_h: float
    reason: str
    candidates: int
    """How many were simulated."""


def answer(question: Question) -> Answer:
    """The best knobs that keep the promise; those that are configured where none is clearly better."""
    return _Search(question).best()


class _Search:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._dispatch = question.spec.scheduler.dispatch
        self._by_tokens = question.spec.scheduler.plan_measure == "token"
        self._tried: dict[tuple[Knobs, int, int], Result | None] = {}
        """(knobs, steps, seed) → result; None: it stood still."""
        load = question.spec.scheduler
        steps = 16 * (SCREEN_STEPS + WARMUP_STEPS) + (FINALISTS + 2) * FINAL_SEEDS * (FINAL_STEPS + WARMUP_STEPS)
        self._share = min(1.0, EXECUTIONS_MAX / (steps * load.groups_per_step * load.group_size))

    def best(self) -> Answer:
        configured, in_force = self._question.configured, self._question.in_force
        base = self._final(configured)
        base_h = _group_h(base) if base else float("inf")
        promise = self._promise(base)
        released = self._screened()
        kept = {}
        for begun in dict.fromkeys((configured, in_force, *_first(released, FINALISTS))):
            knobs, results = self._judged(begun, promise, min([base_h, *kept.values()]))
            if results:
                kept[knobs] = _group_h(results)
                in_force = knobs if begun == in_force else in_force
        if not kept:
            return self._said(configured, base_h, base_h, "no candidate keeps the promised staleness")
        chosen = min(kept, key=kept.__getitem__)
        if in_force in kept and in_force != configured and kept[in_force] * (1.0 - CHANGE_MIN) <= kept[chosen]:
            chosen = in_force
        if kept[chosen] > base_h * (1.0 - GAIN_MIN):
            return self._said(configured, base_h, base_h, "nothing is clearly better than what is configured")
        return self._said(chosen, kept[chosen], base_h, "best of what was simulated")

    def _screened(self) -> list[Knobs]:
        """Shapes at every release share, fastest first."""
        configured, cap = self._question.configured, self._question.spec.training.age_steps_max
        promise = self._promise(self._runs(configured, SCREEN_STEPS, [self._question.seed]))
        shapes = [self._deepened(shape, promise) for shape in knobs_.shapes(configured, cap, self._dispatch)]
        ranked = self._rank(shapes, promise)
        released = [knobs for shape in _first(ranked, SHAPES_KEPT) for knobs in self._released(shape, promise)]
        return self._rank([self._deepened(knobs, promise) for knobs in released], promise)

    def _released(self, shape: Knobs, promise: float) -> list[Knobs]:
        """The shape at its own release share, and at others from there downwards and upwards as long as that helps."""
        shares, found = knobs_.RELEASE_SHARES, [shape]
        start = shares.index(shape.release_share)
        for way in (reversed(shares[:start]), shares[start + 1 :]):
            best = shape
            for share in way:
                knobs = msgspec.structs.replace(shape, release_share=share)
                if self._rank([best, knobs], promise)[:1] != [knobs]:
                    break
                found.append(best := knobs)
        return found

    def _rank(self, candidates: list[Knobs], promise: float) -> list[Knobs]:
        """By time, fastest first; those that do not run or are staler than promised are left out."""
        found = {}
        for knobs in candidates:
            results = self._runs(knobs, SCREEN_STEPS, [self._question.seed])
            if results and self._staleness(results) <= promise + STALENESS_SLACK:
                found[knobs] = _group_h(results)
        return sorted(found, key=found.__getitem__)

    def _deepened(self, shape: Knobs, promise: float) -> Knobs:
        """By tokens: as deep as the promise allows."""
        if not self._may_move(shape):
            return shape
        slope, before = TOKEN_SLOPE, None
        for _ in range(DEEPENINGS):
            results = self._runs(shape, SCREEN_STEPS, [self._question.seed])
            if not results:
                return shape
            depth, found = shape.extra_depth_steps, self._staleness(results)
            if before is not None and depth != before[0] and found > before[1]:
                slope = (found - before[1]) / (depth - before[0])
            before = depth, found
            shape = self._moved(shape, (promise - found) / slope)
        return shape

    def _moved(self, knobs: Knobs, by_steps: float) -> Knobs:
        """Another φ, which the cap still allows."""
        deepest = self._question.spec.training.age_steps_max - knobs.steps_per_publish + 1
        depth = min(max(0.0, round(knobs.extra_depth_steps + by_steps, 3)), deepest)
        return msgspec.structs.replace(knobs, extra_depth_steps=depth)

    def _judged(self, knobs: Knobs, promise: float, best_h: float) -> tuple[Knobs, list[Result]]:
        """The knobs with their final runs; none where they are behind or staler than promised. By tokens φ is moved up or down to what is promised:
        what a shape does not use of it is time lost."""
        for moves_left in reversed(range(DEEPENINGS + 1)):
            results = self._final(knobs, best_h)
            excess = self._staleness(results) - promise if results else 0.0
            if abs(excess) <= UNUSED_MAX or not moves_left or not self._may_move(knobs):
                break
            knobs = self._moved(knobs, -excess / TOKEN_SLOPE)
        return knobs, results if excess <= STALENESS_SLACK else []

    def _may_move(self, knobs: Knobs) -> bool:
        """Lockstep (φ = 0) has no executions running over a publish, so its tokens are as stale as the law says."""
        return self._by_tokens and knobs != self._question.configured and knobs.extra_depth_steps > 0.0

    def _final(self, knobs: Knobs, best_h: float = float("inf")) -> list[Result]:
        """On every seed; none when the first shows that they are behind what took `best_h` on all of them."""
        first = self._question.seed + 1
        results = self._runs(knobs, FINAL_STEPS, [first])
        if not results or self._is_behind(results[0], first, best_h):
            return []
        return self._runs(knobs, FINAL_STEPS, list(range(first, first + FINAL_SEEDS)))

    def _is_behind(self, result: Result, seed: int, best_h: float) -> bool:
        """Compared by what the configured knobs took on the same seed, since seeds differ more than knobs do."""
        base = self._runs(self._question.configured, FINAL_STEPS, list(range(seed, seed + FINAL_SEEDS)))
        if best_h == float("inf") or not base:
            return False
        return result.group_h / base[0].group_h > (1.0 + GIVEN_UP_SHARE) * best_h / _group_h(base)

    def _promise(self, base: list[Result]) -> float:
        """Mean staleness that nothing may exceed: the law's, or by tokens what the configured knobs show on the same groups."""
        law = knobs_.staleness_mean(self._question.configured, self._dispatch)
        return self._staleness(base) if self._by_tokens and base else law

    def _staleness(self, results: list[Result]) -> float:
        if self._by_tokens:
            return statistics.fmean(result.token_staleness_mean for result in results)
        return statistics.fmean(result.staleness_mean for result in results)

    def _runs(self, knobs: Knobs, steps: int, seeds: list[int]) -> list[Result]:
        """Each at most once; none when one stands still."""
        found = []
        for seed in seeds:
            key = (knobs, steps, seed)
            if key not in self._tried:
                self._tried[key] = self._run(knobs, steps, seed)
            found.append(self._tried[key])
        return [] if None in found else found

    def _run(self, knobs: Knobs, steps: int, seed: int) -> Result | None:
        spec = self._question.spec
        count = max(STEPS_MIN, round(self._share * steps))
        horizon = msgspec.structs.replace(spec.horizon, first_steps=1, warmup_steps=WARMUP_STEPS, steady_steps=count)
        try:
            return simulate(msgspec.structs.replace(knobs_.spec_with(spec, knobs), horizon=horizon), seed)
        except InvariantBroken:  # it stands still
            return None

    def _said(self, knobs: Knobs, step_h: float, base_h: float, reason: str) -> Answer:
        gain = 1.0 - step_h / base_h if base_h < float("inf") else 0.0
        count = len({knobs for knobs, _, _ in self._tried})
        return Answer(knobs=knobs, gain=gain, step_h=step_h, reason=reason, candidates=count)


def _group_h(results: list[Result]) -> float:
    """Not by the step: under a cap of age what waits makes batches larger."""
    return statistics.fmean(result.group_h for result in results)


def _first(ranked: list[Knobs], count: int) -> list[Knobs]:
    """The fastest, and the fastest in lockstep: with φ = 0 nothing is carried over, so that one never has to wait for its cap."""
    lockstep = [knobs for knobs in ranked if knobs.extra_depth_steps == 0.0]
    return list(dict.fromkeys([*ranked[:count], *lockstep[:1]]))
