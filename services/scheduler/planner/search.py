"""Which knobs are best: simulate candidates, few steps for many and many for few; refuse what breaks the promise; stay unless the gain is clear.

    screen     every (μ, φ) by both role rules        one seed, SCREEN_STEPS
    release    the best SHAPES_KEPT at every ρ        the same seed
    final      the best FINALISTS, what is configured and what is in force   FINAL_SEEDS fresh ones, FINAL_STEPS

Within a stage all meet the same groups, so differences are not drawn by lot; the last stage has seeds of its own, so that the winner of many
is not taken at its luckiest word.
"""

import statistics

import msgspec

from gyre.errors import InvariantBroken
from services.scheduler.core import Knobs
from services.scheduler.planner import knobs as knobs_
from services.scheduler.planner.question import Question
from services.scheduler.simulator import Result, Spec, simulate

SCREEN_STEPS = 24
FINAL_STEPS = 60
WARMUP_STEPS = 6
SHAPES_KEPT = 3
FINALISTS = 3
FINAL_SEEDS = 3
EXECUTIONS_MAX = 40_000
"""Of one plan, two to four seconds; large batches are simulated for fewer steps, STEPS_MIN at least."""
STEPS_MIN = 10
GAIN_MIN = 0.008
"""Against what is configured: below this the gain is within what a simulation from a few hundred groups can be wrong by."""
CHANGE_MIN = 0.004
"""Against what is in force: below this nothing is changed."""
STALENESS_SLACK = 0.02


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
        self._tried: set[Knobs] = set()
        self._most = knobs_.promised_max(question.configured)
        """Largest staleness that a candidate may show: what is promised, or what the configured policy itself shows on the same groups, for
        training that takes the oldest *ready* group keeps the promise only under a cap of age."""
        load = question.spec.scheduler
        steps = 16 * (SCREEN_STEPS + WARMUP_STEPS) + (FINALISTS + 2) * FINAL_SEEDS * (FINAL_STEPS + WARMUP_STEPS)
        self._share = min(1.0, EXECUTIONS_MAX / (steps * load.groups_per_step * load.group_size))

    def best(self) -> Answer:
        configured, in_force = self._question.configured, self._question.in_force
        runs = {configured: self._final(configured)}
        self._most = max([self._most, *(result.staleness_max for result in runs[configured])])
        screened = self._rank(knobs_.shapes(configured))
        released = self._rank(
            [
                msgspec.structs.replace(shape, release_share=share)
                for shape in _first(screened, SHAPES_KEPT)
                for share in knobs_.RELEASE_SHARES
            ]
        )
        for knobs in (in_force, *_first(released, FINALISTS)):
            if knobs not in runs:
                runs[knobs] = self._final(knobs)
        base_h = _step_h(runs[configured]) if runs[configured] else float("inf")
        kept = {knobs: _step_h(results) for knobs, results in runs.items() if self._keeps_promise(results)}
        if not kept:
            return self._said(configured, base_h, base_h, "no candidate keeps the promised staleness")
        chosen = min(kept, key=kept.__getitem__)
        if in_force in kept and in_force != configured and kept[in_force] * (1.0 - CHANGE_MIN) <= kept[chosen]:
            chosen = in_force
        if kept[chosen] > base_h * (1.0 - GAIN_MIN):
            return self._said(configured, base_h, base_h, "nothing is clearly better than what is configured")
        return self._said(chosen, kept[chosen], base_h, "best of what was simulated")

    def _rank(self, candidates: list[Knobs]) -> list[Knobs]:
        """By time, fastest first; those that do not run or break the promise are left out."""
        spec, found = self._with_steps(SCREEN_STEPS), {}
        for knobs in candidates:
            results = self._runs(spec, knobs, [self._question.seed])
            if self._keeps_promise(results):
                found[knobs] = _step_h(results)
        return sorted(found, key=found.__getitem__)

    def _final(self, knobs: Knobs) -> list[Result]:
        first = self._question.seed + 1
        return self._runs(self._with_steps(FINAL_STEPS), knobs, list(range(first, first + FINAL_SEEDS)))

    def _runs(self, spec: Spec, knobs: Knobs, seeds: list[int]) -> list[Result]:
        self._tried.add(knobs)
        try:
            return [simulate(knobs_.spec_with(spec, knobs), seed) for seed in seeds]
        except InvariantBroken:  # it stands still
            return []

    def _with_steps(self, steps: int) -> Spec:
        spec = self._question.spec
        count = max(STEPS_MIN, round(self._share * steps))
        horizon = msgspec.structs.replace(spec.horizon, first_steps=1, warmup_steps=WARMUP_STEPS, steady_steps=count)
        return msgspec.structs.replace(spec, horizon=horizon)

    def _keeps_promise(self, results: list[Result]) -> bool:
        if not results:
            return False
        mean = statistics.fmean(result.staleness_mean for result in results)
        is_fresh = mean <= knobs_.staleness_mean(self._question.configured) + STALENESS_SLACK
        return is_fresh and max(result.staleness_max for result in results) <= self._most

    def _said(self, knobs: Knobs, step_h: float, base_h: float, reason: str) -> Answer:
        gain = 1.0 - step_h / base_h if base_h < float("inf") else 0.0
        return Answer(knobs=knobs, gain=gain, step_h=step_h, reason=reason, candidates=len(self._tried))


def _step_h(results: list[Result]) -> float:
    return statistics.fmean(result.step_h for result in results)


def _first(ranked: list[Knobs], count: int) -> list[Knobs]:
    """The fastest, and the fastest in lockstep: with φ = 0 nothing is carried over, so that one keeps its maximum whatever the durations."""
    lockstep = [knobs for knobs in ranked if knobs.extra_depth_steps == 0.0]
    return list(dict.fromkeys([*ranked[:count], *lockstep[:1]]))
