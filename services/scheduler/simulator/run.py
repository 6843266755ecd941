"""`simulate(spec, seed) → Result`: the one entry point, the same answer for the same arguments."""

import math

from services.scheduler.simulator.measures import HOUR_S, Result, Trace, of_groups, of_totals
from services.scheduler.simulator.spec import Spec
from services.scheduler.simulator.world import Planner, World


def simulate(spec: Spec, seed: int = 1, planner: Planner | None = None) -> Result:
    """Simulate one run; raises InvariantBroken when it stands still."""
    return _measured(World(spec, seed, planner))


def traced(spec: Spec, seed: int = 1, planner: Planner | None = None) -> tuple[Result, Trace]:
    """The same with what a picture needs."""
    world = World(spec, seed, planner, is_traced=True)
    return _measured(world), world.measures.trace


def window(spec: Spec) -> tuple[int, int]:
    """(first step, step after the last) of the steady state: whole bursts."""
    burst = spec.scheduler.steps_per_publish
    start = math.ceil(spec.horizon.warmup_steps / burst) * burst
    return start, start + math.ceil(spec.horizon.steady_steps / burst) * burst


def _measured(world: World) -> Result:
    spec, measures = world.spec, world.measures
    start, end = window(spec)
    if end == start:
        start, end = 0, spec.horizon.first_steps
    if spec.horizon.first_steps < start:
        world.until_step(spec.horizon.first_steps)
    world.until_step(start)
    before = world.totals()
    world.until_step(max(end, spec.horizon.first_steps))
    taken = [(step, group) for step, group in measures.groups if start <= step < end]
    steps = end - start
    passed = world.totals() - before
    passed_h = (measures.step_at_s[end - 1] - before.at_s) / HOUR_S
    return Result(
        first_steps_h=measures.step_at_s[spec.horizon.first_steps - 1] / HOUR_S,
        step_h=passed_h / steps, group_h=passed_h / max(1, len(taken)),
        bound_step_h=world.bound_s(taken) / steps / HOUR_S,
        wait_h=sum(group.waited_s for _, group in taken) / max(1, sum(len(group.lasted_s) for _, group in taken)) / HOUR_S,
        executions=measures.ended, evictions=measures.evictions, role_changes=measures.role_changes, decisions=measures.decisions,
        simulated_s=world.events.now_s,
        **of_groups(taken), **of_totals(passed, spec.nodes),
    )  # fmt: skip
