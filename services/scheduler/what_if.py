"""What would happen with other knobs: two simulations of the same workload, in a process of their own that is stopped at its limit (D15).

WhatIf ─▶ present.specification ─▶ python -m services.scheduler.what_if ─▶ a line a seed ─▶ summary
                                   stdin: both specifications, seeds
"""

import asyncio
import json
import math
import statistics
import sys
import tomllib
from typing import Any

import msgspec

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.config import SchedulerConfig
from gyre.config.staleness import burst_max, depth_steps, law_steps
from gyre.errors import Conflict, InvalidInput, Overloaded, Unavailable
from services.scheduler.child import begin, lines_of
from services.scheduler.core import State
from services.scheduler.present import measured_step_s, specification
from services.scheduler.simulator import parse, simulate
from services.scheduler.simulator.bounds import SLOTS_MAX, SLOTS_PER_NODE_MAX

LIMIT_S, LIMIT_S_MAX = 30.0, 600.0
SEEDS, SEEDS_MAX = 8, 100
KNOBS_MAX = 32
NOT_SIMULATED = frozenset({
    "aging_s", "anneal_steps", "anneal_to", "evaluation_concurrency_max", "evaluations_max", "plan_measure", "snapshot_facts", "starvation_s",
    "tenant_weights",
})  # fmt: skip
"""Of one tenant's tasks, which come when they are needed, nothing waits; no planner, no evaluation and no temperature is simulated. With such a knob
both variants would be the same."""
HOUR_S = 3600.0
_MEASURES = ("step_h", "staleness_mean", "staleness_max", "token_staleness_mean", "timed_out_share", "idle_share")


class WhatIf:
    """One question at a time."""

    def __init__(self, config: SchedulerConfig, age_steps_max: int) -> None:
        """`age_steps_max`: the run's hard cap on staleness (`trajproc.age_steps_max`)."""
        self._config, self._age_steps_max = config, age_steps_max
        self._busy = asyncio.Lock()

    async def ask(self, state: State, request: pb.WhatIfRequest) -> pb.WhatIfResponse:
        """Raises InvalidInput for impossible knobs, Conflict before anything was measured, Overloaded, Unavailable when nothing was done in time."""
        limit_s, seeds = request.limit_s or LIMIT_S, request.seeds or SEEDS
        if not 1 <= seeds <= SEEDS_MAX or not 0 < limit_s <= LIMIT_S_MAX:
            raise InvalidInput(
                f"seeds is 1 to {SEEDS_MAX} and limit_s up to {LIMIT_S_MAX:g}, not {seeds} and {limit_s:g}"
            )
        base, basis = specification(state, self._config, self._age_steps_max)
        try:
            parse(base)
        except InvalidInput as error:
            raise Conflict(f"this run cannot be simulated as it is now: {error}") from error
        changed = with_knobs(base, dict(request.knobs))
        parse(changed)
        if self._busy.locked():
            raise Overloaded("another what-if is being simulated", retry_after_s=5.0)
        async with self._busy:
            pairs = await _simulated({"specs": [base, changed], "seeds": seeds}, limit_s)
        if not pairs:
            raise Unavailable(f"not one seed was simulated within {limit_s:g} s: allow more, or ask about fewer cells")
        reply = summary(pairs)
        reply.measured_step_s = measured_step_s(state)
        reply.basis.extend(basis)
        return reply


def with_knobs(base: dict[str, Any], knobs: dict[str, str]) -> dict[str, Any]:
    """`base` with fields of its scheduler section replaced. Raises InvalidInput for what is no field, no value of it, or changes nothing that is
    simulated, in the names that the run's configuration has."""
    if not knobs or len(knobs) > KNOBS_MAX:
        raise InvalidInput(f"name 1 to {KNOBS_MAX} knobs, e.g. extra_depth_steps = 1")
    scheduler, cluster = dict(base["scheduler"]), dict(base["cluster"])
    simulated = ", ".join(sorted(scheduler.keys() - NOT_SIMULATED))
    for name, text in knobs.items():
        if name not in scheduler:
            raise InvalidInput(f"scheduler has no field {name[:80]!r}; it has {simulated}")
        if name in NOT_SIMULATED:
            raise InvalidInput(f"scheduler.{name} changes nothing that a what-if simulates; it simulates {simulated}")
        try:
            scheduler[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            scheduler[name] = text
    chosen = _checked(scheduler, base["training"]["age_steps_max"])
    if (
        "cell_capacity" in knobs
    ):  # of every cell, whatever they hold now; a simulated cell's capacity is its node's slots
        if chosen.cell_capacity > min(SLOTS_PER_NODE_MAX, SLOTS_MAX / chosen.cells):
            raise InvalidInput(
                f"scheduler.cell_capacity {chosen.cell_capacity} in {chosen.cells} cells is more than can be simulated: at most "
                f"{int(min(SLOTS_PER_NODE_MAX, SLOTS_MAX / chosen.cells))}"
            )
        cluster["slots_per_node"], cluster["cell_slots"] = chosen.cell_capacity, []
    elif "cells" in knobs:  # cells that are there hold what they hold now, further ones what is configured
        further = [int(cluster["slots_per_node"])] * chosen.cells
        cluster["cell_slots"] = (cluster["cell_slots"] + further)[: chosen.cells]
    return base | {"scheduler": scheduler, "cluster": cluster}


def _checked(scheduler: dict[str, Any], age_steps_max: int) -> SchedulerConfig:
    """The section as a configuration has it. Raises InvalidInput."""
    try:
        chosen = msgspec.convert(scheduler, SchedulerConfig, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error).replace("$.", "scheduler.")) from error
    if (law := law_steps(chosen)) > age_steps_max:
        burst, depth = chosen.steps_per_publish, depth_steps(age_steps_max, chosen.steps_per_publish, chosen.dispatch)
        possible = (
            f"scheduler.extra_depth_steps is at most {depth:g} then"
            if depth >= 0
            else f"bursts of {burst} steps are that stale by themselves, scheduler.steps_per_publish is at most "
            f"{burst_max(age_steps_max, chosen.dispatch)}"
        )
        raise InvalidInput(
            f"this run's trajproc.age_steps_max {age_steps_max} is below the mean staleness {law:g} of these knobs: {possible}"
        )
    return chosen


def summary(pairs: list[list[dict[str, float]]]) -> pb.WhatIfResponse:
    """`pairs`: for each seed the measures of both variants."""
    ratios = [changed["step_h"] / unchanged["step_h"] for unchanged, changed in pairs]
    return pb.WhatIfResponse(
        unchanged=_prediction([pair[0] for pair in pairs]), changed=_prediction([pair[1] for pair in pairs]),
        time_ratio=statistics.fmean(ratios), time_ratio_error=_error(ratios), seeds=len(pairs),
    )  # fmt: skip


def _prediction(found: list[dict[str, float]]) -> pb.Prediction:
    def mean(name: str) -> float:
        return statistics.fmean(one[name] for one in found)

    step_s = [one["step_h"] * HOUR_S for one in found]
    return pb.Prediction(
        step_s=statistics.fmean(step_s), step_s_error=_error(step_s), staleness_mean=mean("staleness_mean"),
        staleness_max=int(max(one["staleness_max"] for one in found)), token_staleness_mean=mean("token_staleness_mean"),
        timed_out_share=mean("timed_out_share"), idle_share=mean("idle_share"), role_changes_per_step=mean("role_changes_per_step"),
    )  # fmt: skip


def _error(values: list[float]) -> float:
    """Standard error of the mean; 0 for one value, of which nothing is known."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


async def _simulated(job: dict[str, Any], limit_s: float) -> list[list[dict[str, float]]]:
    """What was done in time. Raises Unavailable."""
    lines = await lines_of("services.scheduler.what_if", json.dumps(job).encode(), limit_s)
    return [json.loads(line) for line in lines]


def main() -> None:
    """The child: both variants for one seed after the other, a line of JSON each."""
    begin()
    job = json.load(sys.stdin)
    specs = [parse(tree) for tree in job["specs"]]
    for seed in range(1, job["seeds"] + 1):
        print(json.dumps([_measures(spec, seed) for spec in specs]), flush=True)


def _measures(spec: Any, seed: int) -> dict[str, float]:
    found = simulate(spec, seed)
    steps = found.simulated_s / HOUR_S / found.step_h if found.step_h else 1.0
    return {name: getattr(found, name) for name in _MEASURES} | {"role_changes_per_step": found.role_changes / steps}


if __name__ == "__main__":
    main()
