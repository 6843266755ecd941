"""The present state as a specification of the simulator: what this run's work, training and role changes have been like up to now.

One cell is one node. What was not measured is taken from elsewhere and said in `basis`.
"""

import math
from typing import Any

import msgspec

from gyre.config import SchedulerConfig
from gyre.errors import Conflict
from services.scheduler.core import State
from services.scheduler.core.fleet import Cell
from services.scheduler.simulator.bounds import DAY_S, HOURS_MIN, SLOTS_PER_NODE_MAX, SPREAD_MAX, YEAR_H
from services.scheduler.simulator.spec import Cluster

HOUR_S = 3600.0
GROUPS_MIN = 8
"""Fewer whole groups are no distribution; then the estimates' lognormal stands in."""
EVICTION_SHARE = 0.0043
"""Of an execution's mean duration, what a move to another cell costs it: 30 s of 1.93 h (scheduling of QwenGyre, arXiv 2609.33848)."""
WALL_FACTOR = 10.0
"""A wall limit that nobody knows is this many mean durations: none."""
EXECUTIONS_MAX = 100_000
"""Of one simulated run: about five seconds."""
STEPS_MIN, STEPS_MAX = 12, 60
WARMUP_STEPS = 12


def specification(state: State, config: SchedulerConfig, age_steps_max: int) -> tuple[dict[str, Any], list[str]]:
    """(tree as the simulator's TOML gives it, where its numbers come from). Raises Conflict while too little has been measured.

    `age_steps_max`: the run's hard cap on staleness (`trajproc.age_steps_max`).
    """
    if state.pace.group_cell_s <= 0.0 or not state.estimates:
        raise Conflict("nothing is known yet of what training costs: ask again when the first steps are done")
    for what, kind in (("train", "standalone"), ("serve", "training")):
        if all(cell.kind == kind for cell in _there(state)):
            raise Conflict(f"no cell that may {what} is there now: ask again when one has come back")
    workload, slowdown, mean_s, basis = _workload(state)
    cluster, costs = _cluster(state, slowdown, mean_s)
    scheduler = _scheduler(state, config)
    steps = EXECUTIONS_MAX // (scheduler["groups_per_step"] * scheduler["group_size"]) - WARMUP_STEPS
    tree = {
        "cluster": cluster, "workload": workload,
        "training": {"group_node_h": _bounded_h(state.pace.group_cell_s / HOUR_S), "age_steps_max": age_steps_max}, "scheduler": scheduler,
        "horizon": {"first_steps": 1, "warmup_steps": WARMUP_STEPS, "steady_steps": max(STEPS_MIN, min(STEPS_MAX, steps))},
    }  # fmt: skip
    basis = [
        *basis, *costs, f"training: {state.pace.group_cell_s:.3g} cell-seconds a group, {scheduler['groups_per_step']} groups a step",
        f"age: no group is trained more than {age_steps_max} steps after its dispatch",
        f"cells: {scheduler['cells']} that are there, {_in_words([cell.capacity for cell in _there(state)])}",
    ]  # fmt: skip
    return tree, basis


def measured_step_s(state: State) -> float:
    """Wall time of a step from the run's start to its last publish; 0 before the first."""
    if state.published_version == 0 or state.boundary_at_s <= state.started_at_s:
        return 0.0
    return (state.boundary_at_s - state.started_at_s) / state.published_version


def _workload(state: State) -> tuple[dict[str, Any], float, float, list[str]]:
    """(workload, slowdown of a full cell, mean duration in seconds, basis)."""
    mean_s = _weighted(state, lambda estimate: estimate.mean_s)
    groups = [group for group in state.history.groups if group.tokens]
    token_s, slowdown = state.history.speed()
    walls = [group.wall_s for group in groups] or [group.task.limits.wall_s for group in state.groups.values()]
    wall_h = _bounded_h((max(walls) if walls else WALL_FACTOR * mean_s) / HOUR_S)
    if len(groups) >= GROUPS_MIN and token_s > 0.0:
        hours = [[_bounded_h(max(1, tokens) * token_s / HOUR_S) for tokens in group.tokens] for group in groups]
        load = {"kind": "history", "history_h": hours, "wall_limit_h": wall_h}
        said = f"work: the last {len(groups)} groups, {token_s:.3g} s a token on an empty cell, {1 + slowdown:.2f} times that on a full one"
        return load, slowdown, mean_s, [said]
    log_mean = _weighted(state, lambda estimate: estimate.log_mean)
    spread = _weighted(state, lambda estimate: estimate.log_variance + (estimate.log_mean - log_mean) ** 2)
    load = {
        "median_h": _bounded_h(math.exp(log_mean) / HOUR_S),
        "sigma": min(SPREAD_MAX, math.sqrt(spread)),
        "wall_limit_h": wall_h,
    }
    said = f"work: lognormal by the estimates, mean {mean_s:.3g} s; load does not slow it, for that takes {GROUPS_MIN} whole groups"
    return load, 0.0, mean_s, [said]


def _bounded_h(hours: float) -> float:
    """As the simulator takes it: a strange clock or a limit of a century must not leave the question without an answer."""
    return min(YEAR_H, max(HOURS_MIN, hours))


def _weighted(state: State, value: Any) -> float:
    """Mean over task types by executions seen."""
    seen = sum(estimate.executions for estimate in state.estimates.values())
    return sum(estimate.executions * value(estimate) for estimate in state.estimates.values()) / max(1, seen)


def _cluster(state: State, slowdown: float, mean_s: float) -> tuple[dict[str, Any], list[str]]:
    usual = Cluster()
    costs, basis = {}, []
    for target, field in (("training", "into_training_s"), ("rollout", "into_rollout_s")):
        seen = state.fleet.switch_s.get(target)
        costs[field] = min(DAY_S, sum(seen) / len(seen)) if seen else getattr(usual, field)
        basis.append(f"into {target}: {costs[field]:.3g} s" + ("" if seen else ", the paper's: none was measured"))
    slots = [cell.capacity for cell in _there(state)]
    cluster = {
        "nodes_per_cell": 1, "slots_per_node": min(SLOTS_PER_NODE_MAX, state.settings.cell_capacity), "cell_slots": slots,
        "speed": {"family": "hyperbolic", "slowdown": slowdown}, "eviction_s": min(DAY_S, EVICTION_SHARE * mean_s),
        "publish_s": min(DAY_S, state.history.publish_s), "rebalance": True, **costs,
    }  # fmt: skip
    return cluster, basis


def _there(state: State) -> list[Cell]:
    """In order."""
    return [cell for cell in state.cells.values() if not cell.is_lost]


def _in_words(slots: list[int]) -> str:
    if len(set(slots)) == 1:
        return f"{slots[0]} executions each"
    return ", ".join(f"{slots.count(size)} of {size}" for size in sorted(set(slots), reverse=True)) + " executions"


def _scheduler(state: State, config: SchedulerConfig) -> dict[str, Any]:
    """The configured section with the knobs in force, what steps really take, and the cells that are not lost.

    No planner is simulated here, and elastic_plus is two way where it never plans: as it is now, or all through where another mode asks what it
    would do.
    """
    kinds = [cell.kind for cell in _there(state)]
    training = kinds.count("training")
    # What was added to a fixed split never trains either.
    standalone = len(kinds) - training if config.mode == "async" else kinds.count("standalone")
    knobs = state.knobs
    plan_every = config.plan_every_bursts if config.mode == "elastic_plus" and not knobs.is_two_way else 0
    sizes = [len(group.tokens) for group in state.history.groups] or [config.group_size]
    return msgspec.to_builtins(config) | {
        "cells": len(kinds), "training_cells": training, "standalone_cells": standalone,
        "groups_per_step": max(1, round(state.groups_per_step)),
        "group_size": max(sizes), "steps_per_publish": knobs.steps_per_publish, "extra_depth_steps": knobs.extra_depth_steps,
        "release_share": knobs.release_share, "order": knobs.order, "plan_every_bursts": plan_every,
    }  # fmt: skip
