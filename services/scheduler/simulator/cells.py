"""Cells that decode: each has a clock of work done for every execution that runs there, so a change of load costs O(1) and an ending O(log n)."""

import heapq
from collections.abc import Iterator
from typing import Any

from services.scheduler.simulator.spec import Cluster, Spec


class Execution:
    """One member of a group."""

    __slots__ = (
        "attempt", "cell", "deadline", "execution_id", "finish", "group", "member", "own_s", "started_at_s", "ticket", "total_s", "versions",
        "work_s",
    )  # fmt: skip

    def __init__(self, group: "Group", member: int, execution_id: str, work_s: float) -> None:
        self.group, self.member, self.execution_id = group, member, execution_id
        self.work_s = work_s
        """Still to be done, at full speed; while it runs, as of its placement."""
        self.own_s = work_s
        """What of `work_s` was its own when it was last moved: the rest, which comes first, computes its prefix again."""
        self.total_s = work_s
        """All of its work; what moves add to `work_s` samples nothing new."""
        self.attempt = 0
        self.cell: Cell | None = None
        self.finish = 0.0
        """The cell's clock at which it is done."""
        self.ticket = -1
        """Of its entry in the cell's heap: older entries are void."""
        self.deadline = -1
        """Ordinal of its wall-limit event; −1 once it has ended."""
        self.started_at_s = -1.0
        self.versions = 0.0
        """∫ published version dt when it started."""

    @property
    def sampled_s(self) -> float:
        """Work of its own that is done; of one that is not running."""
        return self.total_s - min(self.own_s, self.work_s)

    def move(self, cost_s: float) -> float:
        """It goes on elsewhere, where its prefix is computed first, also if that had not come to its end here; the work that this adds. What has
        sampled next to nothing has next to no prefix."""
        before_s = self.work_s
        self.own_s = min(self.own_s, self.work_s)
        self.work_s = self.own_s + min(cost_s, self.sampled_s)
        return self.work_s - before_s


class Group:
    """A dispatched task."""

    __slots__ = (
        "cost_s", "executions", "group_id", "is_cut", "lasted_s", "left", "ready_at_s", "samples", "sent_at_s", "task_type",
        "token_version", "version", "waited_s",
    )  # fmt: skip

    def __init__(self, group_id: str, task_type: str) -> None:
        self.group_id, self.task_type = group_id, task_type
        self.version = 0
        """v_d"""
        self.executions: list[Execution] = []
        self.is_cut = False
        """The wall limit has ended one of its executions."""
        self.left = 0
        """Executions that have not ended."""
        self.sent_at_s = self.ready_at_s = 0.0
        self.waited_s = 0.0
        """Sum of its executions' times between dispatch and start."""
        self.cost_s = 0.0
        """Node-seconds of its training."""
        self.samples: list[str] = []
        self.lasted_s: list[float] = []
        self.token_version: list[float] = []
        """Mean published version over each execution's run."""


class Cell:
    """Runs up to `slots` executions at `pace[n]` each while it serves."""

    __slots__ = (
        "_heap", "at_s", "busy_s", "clock", "event", "index", "is_dirty", "is_lost", "is_open", "is_serving", "is_training", "name",
        "nodes", "num", "pace", "served_s", "slots", "used", "work_done_s",
    )  # fmt: skip

    def __init__(self, index: int, name: str, nodes: int, slots: int, pace: list[float]) -> None:
        self.index, self.name, self.nodes, self.slots, self.pace = index, name, nodes, slots, pace
        self.used = [nodes * n * pace[n] / (slots * pace[slots]) for n in range(slots + 1)]
        """Node-seconds of decoding in a second with n running, against a full cell."""
        self.num = 0
        """Executions running."""
        self.clock = 0.0
        self.at_s = 0.0
        self.event = -1
        """Ordinal of its next ending among the world's events."""
        self.is_dirty = False
        self.is_serving = False
        self.is_open = False
        """Takes new executions; a draining cell serves and is not open."""
        self.is_training = False
        self.is_lost = False
        self.busy_s = 0.0
        """Node-seconds with an execution to decode (a node is busy with one)."""
        self.served_s = 0.0
        """Node-seconds of decoding, counted at a full cell's rate."""
        self.work_done_s = 0.0
        self._heap: list[tuple[float, int, Execution]] = []

    def advance(self, now_s: float) -> None:
        """Bring the clock up to now; called before the load changes."""
        passed_s = now_s - self.at_s
        if passed_s > 0.0:
            num = self.num
            if num:
                step = passed_s * self.pace[num]
                self.clock += step
                self.work_done_s += step * num
                self.served_s += passed_s * self.used[num]
                self.busy_s += passed_s * (num if num < self.nodes else self.nodes)
            self.at_s = now_s

    def add(self, execution: Execution, ticket: int) -> None:
        execution.cell = self
        execution.finish = self.clock + execution.work_s
        execution.ticket = ticket
        self.num += 1
        heapq.heappush(self._heap, (execution.finish, ticket, execution))

    def remove(self, execution: Execution) -> None:
        """Take it off with the work that is left."""
        execution.work_s = max(0.0, execution.finish - self.clock)
        execution.cell, execution.ticket = None, -1
        self.num -= 1
        if not self.num:
            self._heap.clear()

    def first(self) -> Execution | None:
        """The execution that ends next."""
        heap = self._heap
        while heap and heap[0][2].ticket != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def next_end_s(self) -> float | None:
        """When it does, as the load is now."""
        execution = self.first()
        return None if execution is None else self.at_s + max(0.0, execution.finish - self.clock) / self.pace[self.num]

    def running(self) -> Iterator[Execution]:
        """In order of their placement."""
        return iter([entry[2] for entry in sorted(self._heap, key=_by_ticket) if entry[2].ticket == entry[1]])


def _by_ticket(entry: tuple[float, int, Any]) -> int:
    return entry[1]


def build(spec: Spec) -> list[Cell]:
    """The cluster's cells, in order."""
    cells = []
    nodes = spec.cell_nodes
    num_slow = round(spec.cluster.slow_cell_share * len(nodes))
    for index, (count, slots) in enumerate(zip(nodes, spec.cell_slots, strict=True)):
        full = float(slots) if spec.cluster.cell_slots else spec.cluster.slots_per_node * count
        slow = spec.cluster.slow_cell_factor if index >= len(nodes) - num_slow else 1.0
        pace = [pace_at(spec.cluster, spec.workload.environment_share, n / full) / slow for n in range(slots + 1)]
        cells.append(Cell(index, f"cell-{index}", count, slots, pace))
    return cells


def pace_at(cluster: Cluster, environment_share: float, load: float) -> float:
    """Work per second of one execution: the environment's share passes at its own speed, the rest at the decode speed under that load."""
    return 1.0 / (environment_share + (1.0 - environment_share) / cluster.speed.at(load))
