"""When to plan: every few bursts, and only if what has been seen has changed since the last plan."""

from gyre.config import SchedulerConfig
from gyre.records import PlanChosen
from services.scheduler.core import State
from services.scheduler.planner.knobs import strict_max
from services.scheduler.planner.question import Question, ask
from services.scheduler.planner.search import Answer, answer
from services.scheduler.simulator import Spec

CHANGE_SHARE = 0.15
"""Work or training cost that has moved by this share since the last plan makes a new one due."""
GROWTH = 3
"""So does a history that has grown this many times: the first plan is made from little."""
GROUPS_ENOUGH = 150


class Planner:
    """Asked at boundaries. Forgetting what it last asked costs one plan and nothing else, so none of it is in the state."""

    def __init__(self, config: SchedulerConfig, seed: int, age_steps_max: int) -> None:
        """`age_steps_max`: the run's hard cap on staleness (`trajproc.age_steps_max`)."""
        self._config, self._seed, self._age_steps_max = config, seed, age_steps_max
        self._last: Question | None = None
        self._seen = 0

    def __call__(self, state: State, now_s: float) -> PlanChosen | None:
        """Question and answer in one: what the simulator calls."""
        question = self.due(state)
        return None if question is None else chosen(state, answer(question), now_s)

    def due(self, state: State) -> Question | None:
        """A question, where one is due at this boundary."""
        every = self._config.plan_every_bursts
        if state.settings.mode != "elastic_plus" or every == 0 or state.burst == 0 or state.burst % every:
            return None
        question = ask(state, self._config, self._seed, self._age_steps_max)
        if question is None or not self._is_news(question):
            return None
        self._last, self._seen = question, len(question.spec.workload.history_h)
        return question

    def _is_news(self, question: Question) -> bool:
        if self._last is None:
            return True
        if self._seen < GROUPS_ENOUGH and len(question.spec.workload.history_h) >= GROWTH * self._seen:
            return True
        return any(
            abs(now / before - 1.0) > CHANGE_SHARE
            for now, before in zip(question.scales, self._last.scales, strict=True)
        )


def planner_of(spec: Spec) -> Planner | None:
    """What a simulated run of this specification has: elastic_plus plans unless it is told not to. Without a cap of age, which is what a plan keeps,
    by the configured knobs' own maximum under strict oldest first."""
    chosen = spec.scheduler
    if chosen.mode != "elastic_plus" or chosen.plan_every_bursts == 0:
        return None
    return Planner(chosen, 1, spec.training.age_steps_max or strict_max(chosen, chosen.dispatch))


def chosen(state: State, found: Answer, now_s: float) -> PlanChosen | None:
    """The fact; None where nothing changes."""
    knobs = found.knobs
    if knobs == state.planned:
        return None
    return PlanChosen(
        plan=state.plans + 1, steps_per_publish=knobs.steps_per_publish, extra_depth_steps=knobs.extra_depth_steps,
        release_share=knobs.release_share, is_two_way=knobs.is_two_way, order=knobs.order, at_s=now_s, predicted_gain=found.gain,
        reason=f"{found.reason}; {found.candidates} simulated",
    )  # fmt: skip
