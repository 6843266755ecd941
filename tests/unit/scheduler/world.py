"""A cluster in a few heaps: virtual time, random durations, real scheduler core.

It runs what the core dispatches, moves the cells that the core moves, trains like the other services (a batch takes ready groups until it has enough,
a step takes a while, a burst's steps are published), and holds the core to its promises at every decision. Where no cell serves, what runs waits;
where the core leaves in the middle of a step, the step waits for it.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from gyre import records as r
from gyre.ids import sample_id
from services.scheduler.core import Settings, State, apply, decide
from services.scheduler.core.dispatch import select, tasks
from tests.unit.scheduler import facts


class World:
    """`submit` groups, `start` training, `run` until nothing more happens; then look at what was recorded."""

    def __init__(
        self,
        settings: Settings,
        seed: int = 1,
        batch_groups: Callable[[random.Random, int], int] | None = None,
        oldest_first: bool = False,
        duration_s: Callable[[random.Random], float] = lambda rng: rng.lognormvariate(0.0, 1.0),
        train_s: float = 0.05,
        move_s: float = 0.1,
        drop_share: float = 0.0,
    ) -> None:
        """`batch_groups(rng, step)`: groups that complete the batch of a step; B when left out. `train_s`: seconds a group's training takes
        with one cell. `drop_share`: chance of each group, and of each sample of the others, to be dropped when evaluated."""
        self.settings = settings
        self.rng = random.Random(seed)
        self.batch_groups = batch_groups or (lambda rng, step: settings.groups_per_step)
        self.oldest_first = oldest_first
        self.duration_s, self.train_s, self.move_s, self.drop_share = duration_s, train_s, move_s, drop_share
        self.state = State(settings)
        self.now_s = 0.0
        self.log: list[Any] = []
        """Every fact, in order."""
        self.staleness: list[tuple[int, int]] = []
        """(step, staleness in steps) of each group trained."""
        self.levels: list[int] = []
        """Outstanding groups just after each boundary dispatch."""
        self.releases: list[tuple[str, int, int]] = []
        """(cell, waterlevel, capacity) at each release."""
        self.trainers: list[list[str]] = []
        """Cells with target `training`, whenever a role was requested."""
        self.causes: list[str] = []
        self.steps = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._waiting: deque[r.TaskDispatched] = deque()
        self._running = 0
        self._left: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self._ready: list[str] = []
        self._frozen: list[tuple[r.TaskDispatched, float]] = []
        """Executions that would have ended while no cell served."""
        self._has_resumed = False
        self._quiet_at = -1
        self._was_cell_reported = False
        self._step_open = False
        self._paused: Callable[[], None] | None = None
        """The update of a step whose core has left."""
        self._updating = False
        self._batch: list[str] = []
        self._wanted = 0
        self._submitted = 0

    # The outside

    def submit(self, groups: int, size: int = 2, purpose: str = "train") -> None:
        for _ in range(groups):
            self.say(facts.submitted(self._submitted, size, purpose, self.now_s))
            self._submitted += 1

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Do something from outside at a later time."""
        self._order += 1
        heapq.heappush(self._events, (self.now_s + delay_s, self._order, act))

    def start(self, steps: int) -> None:
        self.steps = steps
        self.say(facts.started_run(steps, self.now_s))

    def run(self, events_max: int = 2_000_000) -> "World":
        self.settle()
        while events_max and (self._events or self._is_waiting()):
            self.now_s, _, act = heapq.heappop(self._events)
            act()
            self.settle()
            events_max -= 1
        assert events_max, "the world does not come to rest"
        return self

    def _is_waiting(self) -> bool:
        """Nothing happens any more and something is left to do: the clock goes on a little, as the service's does."""
        facts_before, self._quiet_at = self._quiet_at, len(self.log)
        if facts_before == len(self.log):
            return False
        self.later(60.0, lambda: None)
        return True

    def say(self, fact: Any) -> None:
        apply(self.state, fact)
        self.log.append(fact)
        self._was_cell_reported |= isinstance(fact, r.CellReported)

    def settle(self) -> None:
        """Decide, as the service does, until nothing follows; and let the rest of the cluster react."""
        for _ in range(8):
            decisions = decide(self.state, self.now_s)
            self._watch(decisions)
            for decision in decisions:
                self.say(decision)
                if isinstance(decision, r.RoleChanged):
                    self._move(decision)
                if isinstance(decision, r.GroupDispatched):
                    self._waiting += tasks(self.state, self.state.groups[decision.group_id])
                    self._left[decision.group_id] = len(decision.execution_ids)
                    self._versions[decision.group_id] = decision.policy_version
            if any(isinstance(decision, r.GroupDispatched) and decision.purpose == "train" for decision in decisions):
                self.levels.append(self.state.outstanding_groups)
            self._start_executions()
            self._train()
            if not decisions and not self._has_resumed:
                return
            self._has_resumed = False
        raise AssertionError("decisions do not settle: decide is not idempotent")

    # What the other services do

    def _start_executions(self) -> None:
        if self._frozen and self.state.capacity > 0:
            frozen, self._frozen = self._frozen, []
            for task, lasted_s in frozen:
                self._end(task, lasted_s)
        while self._waiting and self._running < self.state.capacity:
            task = self._waiting.popleft()
            self._running += 1
            self.say(facts.leased(task.execution_id))
            self.say(facts.running(task.execution_id))
            lasts_s = self.duration_s(self.rng)
            self.later(lasts_s, lambda task=task, lasts_s=lasts_s: self._end(task, lasts_s))

    def _end(self, task: r.TaskDispatched, lasted_s: float) -> None:
        if self.state.capacity == 0:
            self._frozen.append((task, lasted_s))
            return
        self._running -= 1
        purpose = task.task.purpose
        self.say(facts.ended(task.execution_id, lasted_s=lasted_s, purpose=purpose))
        self._left[task.group_id] -= 1
        if self._left[task.group_id] == 0 and purpose == "train":
            self._evaluate(task.group_id)

    def _evaluate(self, group: str) -> None:
        kept = False
        is_lost = self.rng.random() < self.drop_share
        for execution in list(self.state.groups[group].executions):
            is_dropped = is_lost or self.rng.random() < self.drop_share
            self.say((facts.dropped if is_dropped else facts.ready)(execution))
            kept |= not is_dropped
        if kept:
            self._ready.append(group)

    def restart(self) -> None:
        """The scheduler dies and is started again: all it has is the stream."""
        self.state = State(self.settings)
        for fact in self.log:
            apply(self.state, fact)

    def _move(self, request: r.RoleChanged) -> None:
        for index, phase in enumerate(r.CELL_PHASES[request.target][1:], 1):
            said = facts.role(request.cell, request.change, request.target, phase)
            self.later(self.move_s * index, lambda said=said: self.say(said))

    def _train(self) -> None:
        core = next(iter(self.state.cells.values()))
        can_train = core.target == "training" and core.is_settled and self.state.steps_done < self.steps
        # After a publish a core that is about to go back does not open the next step.
        if not can_train:
            return
        if self._paused is not None:
            paused, self._paused, self._has_resumed = self._paused, None, True
            paused()
        if self._updating:
            return
        if not self._step_open:
            is_new = core.kind == "training" or core.burst >= self.state.burst
            if not self.state.is_burst_open or not (is_new or self.state.core_stays):
                return
            self._wanted = self.batch_groups(self.rng, self.state.steps_done)
            if not self.settings.streaming and self._wanted > len(self._ready) < self.state.outstanding_groups:
                return
            self._step_open = True
            self._batch = []
        while self._ready and len(self._batch) < self._wanted:
            self._take()
        nothing_left = not self._ready and self.state.outstanding_groups == len(self._batch) and not select(self.state)
        if len(self._batch) >= self._wanted or nothing_left:
            self._close("turns" if len(self._batch) >= self._wanted else "exhausted")

    def _take(self) -> None:
        index = self.rng.randrange(len(self._ready))
        if self.oldest_first:
            index = min(range(len(self._ready)), key=lambda i: self._versions[self._ready[i]])
        group = self._ready.pop(index)
        self._batch.append(group)
        step = self.state.steps_done
        self.say(facts.extended(step, group, self._samples([group])))
        self.staleness.append((step, step - self._versions[group]))

    def _close(self, cause: str) -> None:
        step = self.state.steps_done
        self.causes.append(cause)
        samples = self._samples(self._batch)
        self.say(facts.closed(step, list(self._batch), samples, cause, len(self._batch), self._wanted))
        self._updating = True
        took_s = self.train_s * max(1, len(self._batch)) / self.state.fleet.trainers
        self.later(took_s, lambda: self._update(step, samples))

    def _update(self, step: int, samples: list[str]) -> None:
        core = self.state.fleet.core
        if core.target != "training" or not core.is_settled:
            self._paused = lambda: self._update(step, samples)
            return
        self._updating = self._step_open = False
        self.say(facts.updated(step, samples, self.now_s))
        version = step + 1
        if version == self.state.burst_end:
            self.say(facts.published(version, self.now_s))

    def _samples(self, groups: list[str]) -> list[str]:
        sizes = {group: len(self.state.groups[group].executions) for group in groups}
        return [sample_id(f"{group}-e{member}", 1) for group in groups for member in range(sizes[group])]

    # The promises

    def _watch(self, decisions: list[Any]) -> None:
        requests = [d for d in decisions if isinstance(d, r.RoleChanged) and d.change > 0]
        if not requests:
            return
        cells = self.state.cells
        assert all(cell.is_settled or cell.is_lost for cell in cells.values()), (
            "a move was requested while another was under way"
        )
        assert {cells[request.cell].kind for request in requests} == {"elastic"}, "a cell was moved that has one role"
        training = [name for name, cell in cells.items() if cell.target == "training" and cell.kind == "elastic"]
        if self.settings.mode in ("colocate", "hybrid_switch"):
            assert len({request.target for request in requests}) == 1, "the pool was torn apart"
            names = {request.cell for request in requests}
            self.trainers.append([name for name in cells if name in names] if requests[0].target == "training" else [])
            return
        assert len(requests) <= 1, "two cells moved at once"
        request = requests[0]
        if request.target == "training":
            # The real waterlevel, counted by the world itself.
            unfinished = len(self._waiting) + self._running
            assert unfinished == self.state.waterlevel
            left = self.state.capacity - cells[request.cell].capacity
            assert unfinished <= self.state.knobs.release_share * left
            self.releases.append((request.cell, unfinished, self.state.capacity))
            training.append(request.cell)
        else:
            training.remove(request.cell)
        if not self._was_cell_reported:
            assert training == list(cells)[: len(training)], "trainers are no prefix of the cell order"
        self.trainers.append(training)
