"""What the planner is asked: the present state as a specification of the simulator, and which knobs are configured and in force."""

import math

import msgspec

from gyre.config import SchedulerConfig
from gyre.errors import GyreError
from services.scheduler.core import Knobs, State
from services.scheduler.planner.knobs import staleness_mean
from services.scheduler.planner.speed import fitted
from services.scheduler.present import specification
from services.scheduler.simulator import Spec, parse

GROUPS_MIN = 16
"""Fewer whole groups say too little about the tail."""
CENSORED_FACTOR = 1.25
"""An execution that its wall limit cut would have gone on, nobody knows for how long; at a higher speed it must not count as one that ends."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """All that the search needs."""

    spec: Spec
    configured: Knobs
    """Where the run began: its mean staleness is the promise (with the cap of age that `spec` has), its waterlevel rule what a plan is measured
    against."""
    in_force: Knobs
    seed: int
    tokens: float
    """Mean work of an execution. Not in hours on an empty cell: a run whose cells are always full shows that only by extrapolation, and it jumps."""

    @property
    def scales(self) -> tuple[float, float]:
        """(mean work of an execution in tokens, training cost of a group in node-hours): a new plan is worth its while when one has moved."""
        return self.tokens, self.spec.training.group_node_h


def ask(state: State, config: SchedulerConfig, seed: int, age_steps_max: int) -> Question | None:
    """None while too little has been seen, or where no simulation is possible (no cell, a group larger than any).

    `age_steps_max`: the run's hard cap on staleness, which every candidate runs under.
    """
    groups = state.history.groups
    if len(groups) < GROUPS_MIN:
        return None
    settings = state.settings
    first = Knobs(
        steps_per_publish=settings.steps_per_publish, extra_depth_steps=settings.extra_depth_steps, release_share=settings.release_share,
        is_two_way=False, order=settings.order,
    )  # fmt: skip
    try:
        tree, _ = specification(state, config, age_steps_max)
        load = tree["workload"]
        if load.get("kind") != "history":
            return None
        token_s, speed = fitted(state.history)
        tree["cluster"]["speed"] = msgspec.to_builtins(speed)
        token_h = token_s / 3600.0
        load["history_h"] = [
            [max(1, t) * token_h * (CENSORED_FACTOR if cut else 1.0) for t, cut in zip(g.tokens, g.cut, strict=True)]
            for g in groups
        ]
        tree["scheduler"] |= {"mode": "elastic"}
        tree["training"]["age_steps_max"] = max(age_steps_max, math.ceil(staleness_mean(first, config.dispatch)))
        spec = parse(tree)
    except GyreError:
        return None
    tokens = [count for group in groups for count in group.tokens]
    return Question(
        spec=spec, configured=first, in_force=state.planned or first, seed=seed, tokens=sum(tokens) / max(1, len(tokens))
    )  # fmt: skip
