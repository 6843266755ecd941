"""The rollout side: a queue, placement on the least loaded cell, moves of running executions, the wall limit."""

from collections import deque
from heapq import heapify, heappop, heapreplace

from gyre import records as r
from services.scheduler.simulator.cells import Cell, Execution, Group
from services.scheduler.simulator.clock import Events
from services.scheduler.simulator.measures import Measures

HOLDER = "gateway"
TOKENS_PER_S = 50.0
"""Of one execution on an empty node: work, as the policy sees it, is tokens sampled. Any number does."""


class Rollout:
    """Executions from dispatch to their end. `facts` collects what happened, for the policy to fold."""

    def __init__(self, cells: list[Cell], events: Events, measures: Measures, wall_s: float, eviction_s: float) -> None:
        self.cells = cells
        self.waiting: deque[Execution] = deque()
        """No slot yet, or moved away while none was free (these at the front); as dispatched."""
        self.facts: list = []
        self.ready: list[Group] = []
        """Groups whose executions have all ended, for the trainer to collect."""
        self.dirty: list[Cell] = []
        """Cells whose next ending has to be computed again."""
        self.num_running = 0
        self._room: set[int] = set()
        """Open cells with a free slot."""
        self._events, self._measures = events, measures
        self._wall_s, self._eviction_s = wall_s, eviction_s
        self._tickets = 0

    # Starting

    def enqueue(self, group: Group) -> None:
        self.waiting.extend(group.executions)

    def place(self) -> None:
        """Fill free slots, least loaded cell first, in the order of the queue."""
        while self.waiting and self._room:
            cells = self.cells
            by_load = [(cells[index].num / cells[index].slots, index) for index in self._room]
            heapify(by_load)
            while self.waiting and by_load:
                index = by_load[0][1]
                cell = cells[index]
                self._start(self.waiting.popleft(), cell)
                if cell.num < cell.slots:
                    heapreplace(by_load, (cell.num / cell.slots, index))
                else:
                    heappop(by_load)

    def _start(self, execution: Execution, cell: Cell) -> None:
        now_s = self._events.now_s
        self._put(execution, cell)
        if execution.started_at_s >= 0.0:
            return
        execution.started_at_s = now_s
        execution.group.waited_s += now_s - execution.group.sent_at_s
        execution.attempt += 1
        execution.versions = self._measures.versions_until(now_s)
        execution.deadline = self._events.at(now_s + self._wall_s, self._cut, execution)
        group = execution.group.group_id
        self.facts += (
            r.ExecutionLeased(execution_id=execution.execution_id, group_id=group, attempt=execution.attempt, holder=HOLDER, at_s=now_s),
            r.ExecutionStarted(
                execution_id=execution.execution_id, group_id=group, attempt=execution.attempt, environment=HOLDER, image_digest="", seed=0,
                tool_versions={}, dependency_snapshot="", at_s=now_s,
            ),
        )  # fmt: skip

    def _put(self, execution: Execution, cell: Cell) -> None:
        cell.advance(self._events.now_s)
        self._tickets += 1
        cell.add(execution, self._tickets)
        self.num_running += 1
        if cell.num == cell.slots:
            self._room.discard(cell.index)
        self.touch(cell)

    def _take(self, execution: Execution, cell: Cell) -> None:
        cell.advance(self._events.now_s)
        cell.remove(execution)
        self.num_running -= 1
        if cell.is_open:
            self._room.add(cell.index)
        self.touch(cell)

    def touch(self, cell: Cell) -> None:
        if not cell.is_dirty:
            cell.is_dirty = True
            self.dirty.append(cell)

    def settle(self) -> None:
        """Set the next ending of every cell whose load has changed."""
        for cell in self.dirty:
            cell.is_dirty = False
            at_s = cell.next_end_s()
            cell.event = self._events.at(at_s, self._first_ends, cell) if at_s is not None else -1
        self.dirty.clear()

    # Ending

    def _first_ends(self, cell: Cell, event: int) -> None:
        if cell.event != event:
            return
        execution = cell.first()
        cell.advance(self._events.now_s)
        cell.clock = max(cell.clock, execution.finish)
        self._take(execution, cell)
        self._end(execution, "completed")

    def _cut(self, execution: Execution, event: int) -> None:
        """The wall limit: scored and trained on what is there."""
        if execution.deadline != event:
            return
        if execution.cell is not None:
            self._take(execution, execution.cell)
        else:
            self.waiting.remove(execution)
        execution.group.is_cut = True
        self._measures.work_cut_s += execution.work_s
        self._end(execution, "timed_out")

    def _end(self, execution: Execution, ending: str) -> None:
        now_s, group = self._events.now_s, execution.group
        execution.deadline = -1
        lasted_s = now_s - execution.started_at_s
        group.lasted_s.append(lasted_s)
        versions = self._measures.versions_until(now_s) - execution.versions
        group.token_version.append(versions / lasted_s if lasted_s > 0 else self._measures.version)
        self._measures.ended += 1
        self._measures.timed_out += ending == "timed_out"
        name, attempt = execution.execution_id, execution.attempt
        sample = f"{name}-a{attempt}"
        group.samples.append(sample)
        self.facts += (
            r.ExecutionEnded(
                execution_id=name, group_id=group.group_id, attempt=attempt, task_type=group.task_type, tenant="default", purpose="train",
                ending=ending, reason="submitted", occupancy_s=lasted_s, at_s=now_s,
                tokens_sampled=round(execution.sampled_s * TOKENS_PER_S),
            ),
            r.SampleReady(
                sample_id=sample, execution_id=name, group_id=group.group_id, attempt=attempt, task_type=group.task_type, tenant="default",
                reward=0.0, rewards={}, success=True, truncated=False, advantage=0.0, turns=1, tokens_tree=1, tokens_flat=1, targets_chosen=1,
                targets_sampled=1, paths=1, policy_version=group.version, version_min=0, version_mean=0.0, version_max=0, at_s=now_s,
            ),
        )  # fmt: skip
        group.left -= 1
        if not group.left:
            group.ready_at_s = now_s
            self.ready.append(group)

    # Moves

    def open(self, cell: Cell) -> None:
        """The cell serves from now on."""
        cell.advance(self._events.now_s)
        cell.is_serving = cell.is_open = True
        if cell.num < cell.slots:
            self._room.add(cell.index)

    def close(self, cell: Cell) -> None:
        """It takes nothing new; what runs there goes on."""
        cell.is_open = False
        self._room.discard(cell.index)

    def evict(self, cell: Cell) -> None:
        """What runs there goes to the least loaded cells with room, else to the front of the queue."""
        self.close(cell)
        moved = list(cell.running())
        for execution in moved:
            self._take(execution, cell)
            self._move(execution)
        cell.is_serving = False
        self.waiting.extendleft(reversed(moved))
        self.place()

    def lose(self, cell: Cell) -> None:
        """The cell is gone: what ran there has to go on from its record elsewhere, as after an eviction."""
        self.evict(cell)
        cell.is_lost = True

    def rebalance(self, cell: Cell) -> None:
        """Give a cell that has come back a fair share of what runs, youngest first (they lose least)."""
        while not self.waiting and cell.num < cell.slots:
            source = max((c for c in self.cells if c.is_open), key=lambda c: (c.num / c.slots, -c.index))
            if source is cell or (source.num - 1) / source.slots < (cell.num + 1) / cell.slots:
                return
            execution = max(source.running(), key=lambda e: e.ticket)
            self._take(execution, source)
            self._move(execution)
            self._put(execution, cell)

    def _move(self, execution: Execution) -> None:
        self._measures.evictions += 1
        self._measures.work_moved_s += execution.move(self._eviction_s)
