"""What a simulated run is judged by."""

from itertools import pairwise
from typing import Any

import msgspec

from services.scheduler.simulator.cells import Group

HOUR_S = 3600.0
DECILES = 10


class Result(msgspec.Struct, kw_only=True):
    """One run. Everything but the first line is of the steady window: whole bursts, after the warm-up."""

    first_steps_h: float
    """Wall time to the update `horizon.first_steps`."""
    step_h: float = 0.0
    """Steady wall time of a step; 0 where no steady state was asked for."""
    group_h: float = 0.0
    """The same by the group that was trained: a batch that waited for a group in its last admissible step has more than B."""
    bound_step_h: float = 0.0
    """What no policy beats: node-hours of work of the executions and of training, over all nodes at their most efficient load."""
    staleness_mean: float = 0.0
    staleness_max: int = 0
    staleness_deciles: list[float] = []
    """Mean staleness of dispatch by duration, shortest tenth of the executions first."""
    token_staleness_mean: float = 0.0
    """The same measured from the mean published version while the execution ran: weights are updated in flight."""
    timed_out_share: float = 0.0
    """Executions that the wall limit cut."""
    queries_cut_share: float = 0.0
    """Groups with at least one such execution."""
    idle_share: float = 0.0
    """Node-seconds neither decoding nor training; a node decodes as soon as one execution runs on it."""
    unused_share: float = 0.0
    """The same where decoding counts by what a full node would do: 1 − useful node-seconds / all."""
    slack_share: float = 0.0
    """Share of the time in which nothing is trained."""
    trainer_wait_share: float = 0.0
    """Share of the trainers' node-seconds in which they wait for ready groups."""
    exposed_share: float = 0.0
    """Share of the time in which no execution runs: training (or a move) that rollout does not hide."""
    execution_h: float = 0.0
    query_h: float = 0.0
    """Mean time of an execution, and of the slowest of its group, from start to end."""
    wait_h: float = 0.0
    """Mean time between dispatch and start."""
    groups: int = 0
    executions: int = 0
    """Ended in the whole run."""
    evictions: int = 0
    role_changes: int = 0
    decisions: int = 0
    simulated_s: float = 0.0


class Trace(msgspec.Struct, kw_only=True):
    """For pictures: what changed when, seconds."""

    roles: list[tuple[float, int, str]] = []
    """(when, cell, `rollout` | `to_training` | `training` | `to_rollout` | `lost`)"""
    waterlevel: list[tuple[float, int, int]] = []
    """(when, unfinished executions, capacity)"""
    staleness: list[tuple[float, float, float]] = []
    """(when, mean of a step's groups, mean of their tokens)"""
    bursts: list[float] = []


class Totals(msgspec.Struct):
    """Running sums, subtracted at the window's ends."""

    at_s: float = 0.0
    busy_s: float = 0.0
    served_s: float = 0.0
    trained_s: float = 0.0
    trainer_s: float = 0.0
    active_s: float = 0.0
    silent_s: float = 0.0
    ended: int = 0
    timed_out: int = 0

    def __sub__(self, other: "Totals") -> "Totals":
        return Totals(
            *(a - b for a, b in zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True))
        )


class Measures:
    """Filled by the parts of the world as things happen."""

    def __init__(self, is_traced: bool = False) -> None:
        self.trace = Trace() if is_traced else None
        self.version = 0
        self.step_at_s: list[float] = []
        """When update s + 1 was done."""
        self.groups: list[tuple[int, Group]] = []
        """(step, group), as taken into batches."""
        self.ended = self.timed_out = self.evictions = self.role_changes = self.decisions = 0
        self.work_cut_s = 0.0
        """Work that the wall limit cut off."""
        self.work_moved_s = 0.0
        """Work that moves added."""
        self.trained_s = self.trainer_s = self.active_s = 0.0
        self.silent_s = 0.0
        """Time in which nothing ran."""
        self._versions, self._version_at_s = 0.0, 0.0

    def versions_until(self, now_s: float) -> float:
        """∫ published version dt."""
        return self._versions + self.version * (now_s - self._version_at_s)

    def published(self, version: int, now_s: float) -> None:
        self._versions, self._version_at_s, self.version = self.versions_until(now_s), now_s, version

    def trained(self, nodes: int, passed_s: float, done_s: float, is_open: bool) -> None:
        """`nodes` trained `done_s` node-seconds in `passed_s`."""
        self.trained_s += done_s
        self.trainer_s += nodes * passed_s
        self.active_s += done_s / nodes

    def took(self, group: Group, step: int) -> None:
        self.groups.append((step, group))

    def updated(self, version: int, now_s: float) -> None:
        self.step_at_s.append(now_s)
        if self.trace is not None:
            groups = [group for step, group in self.groups if step == version - 1]
            tokens = [v for group in groups for v in group.token_version]
            if groups:
                mean = version - 1 - sum(group.version for group in groups) / len(groups)
                self.trace.staleness.append((now_s, mean, version - 1 - sum(tokens) / len(tokens)))

    def moved(self, now_s: float, cell: int, what: str) -> None:
        if self.trace is not None:
            self.trace.roles.append((now_s, cell, what))

    def levels(self, now_s: float, waterlevel: int, capacity: int) -> None:
        if self.trace is not None and self.trace.waterlevel[-1:] != [(now_s, waterlevel, capacity)]:
            self.trace.waterlevel.append((now_s, waterlevel, capacity))


def of_groups(taken: list[tuple[int, Group]]) -> dict[str, Any]:
    """Staleness and durations of the groups that the window's steps took."""
    if not taken:
        return {}
    pairs = sorted((lasted_s, step - group.version) for step, group in taken for lasted_s in group.lasted_s)
    staleness = [step - group.version for step, group in taken]
    tokens = [step - version for step, group in taken for version in group.token_version]
    edges = [round(index * len(pairs) / DECILES) for index in range(DECILES + 1)]
    tenths = [pairs[start:end] for start, end in pairwise(edges) if end > start]
    return {
        "staleness_mean": sum(staleness) / len(staleness),
        "staleness_max": max(staleness),
        "staleness_deciles": [sum(stale for _, stale in tenth) / len(tenth) for tenth in tenths],
        "token_staleness_mean": sum(tokens) / len(tokens),
        "execution_h": sum(lasted_s for lasted_s, _ in pairs) / len(pairs) / HOUR_S,
        "query_h": sum(max(group.lasted_s) for _, group in taken) / len(taken) / HOUR_S,
        "queries_cut_share": sum(group.is_cut for _, group in taken) / len(taken),
        "groups": len(taken),
    }


def of_totals(window: Totals, nodes: int) -> dict[str, float]:
    """Shares of the window's time and node-seconds."""
    node_s = max(window.at_s * nodes, 1e-9)
    return {
        "timed_out_share": window.timed_out / max(1, window.ended),
        "idle_share": 1.0 - (window.busy_s + window.trained_s) / node_s,
        "unused_share": 1.0 - (window.served_s + window.trained_s) / node_s,
        "slack_share": 1.0 - window.active_s / max(window.at_s, 1e-9),
        "trainer_wait_share": 1.0 - window.trained_s / max(window.trainer_s, 1e-9),
        "exposed_share": window.silent_s / max(window.at_s, 1e-9),
    }
