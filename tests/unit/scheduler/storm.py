"""A whole run under one seed in which everything goes wrong that can: a heap of events, the real core, and a checker.

    scheduler   folds the stream late, publishes its decisions one by one, dies between any two of them, and comes back from snapshot and tail
    queue       delivers tasks late, again, or not (an offer that died with the scheduler); an unacknowledged one comes again as the next attempt
    gateways    die with what they run; a dead one's words may still arrive; endings are told twice
    cells       are lost in any state and come back with as much or less
    everybody   is delayed at random, so that facts of different speakers arrive in any order; any fact may be told again later

Until `CALM_S` there are faults, afterwards there are none: what has not ended when nothing happens any more never will.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from gyre import records as r
from gyre.ids import sample_id
from gyre.records.lifecycle import ENDED, ExecutionState
from services.scheduler.core import State, apply, decide, decode_state, encode_state
from services.scheduler.core.dispatch import tasks
from tests.unit.scheduler import facts
from tests.unit.scheduler.storm_checks import Checks
from tests.unit.scheduler.storm_settings import random_settings

CALM_S = 40.0
LEASE_S = 4.0


class Storm(Checks):
    """`run` to the end; the checks are asserted on the way, `assert_all_ended` after it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.settings = random_settings(self.rng)
        self.now_s = 0.0
        self.stream: list[Any] = []
        self.truth = State(self.settings)
        """The fold of the whole stream: what is so, whoever knows it yet."""
        self.published = {0}
        self.said = Counter[str]()
        self.trained: Counter[str] = Counter()
        self.begun: set[tuple[str, int]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._mine = State(self.settings)
        self._folded = 0
        self._snapshots = [(0, encode_state(self._mine))]
        self._outbox: list[Any] = []
        self._is_woken = False
        self._deliveries: Counter[str] = Counter()
        self._offered: dict[str, r.TaskDispatched] = {}
        self._acknowledged: set[str] = set()
        self._batch: list[str] | None = None
        self._is_closed = False
        self._wanted = 0
        self._starved_since_s: float | None = None
        self._submit()

    # Time

    def later(self, within_s: float, act: Callable[[], None], least_s: float = 0.0) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now_s + least_s + self.rng.random() * within_s, self._order, act))

    def chance(self, share: float) -> bool:
        """Of a fault; none once it is calm."""
        return self.now_s < CALM_S and self.rng.random() < share

    def run(self, events_max: int = 200_000) -> "Storm":
        for _ in range(self.rng.randint(0, 4)):
            self.later(CALM_S, self._lose_cell)
        for _ in range(self.rng.randint(0, 3)):
            self.later(CALM_S, self._restart)
        for _ in range(self.rng.randint(0, 4)):
            self.later(CALM_S, self._command)
        if self.settings.mode == "elastic_plus":
            for plan in range(1, 4):
                self.later(CALM_S, lambda plan=plan: self._plan(plan))
        quiet = 0
        while quiet < 4:  # as long as something happens, and a little longer: rules that wait for a time to pass
            seen = len(self.stream)
            while self._events and events_max:
                self.now_s, _, act = heapq.heappop(self._events)
                act()
                events_max -= 1
            assert events_max, "it does not come to rest"
            quiet = quiet + 1 if len(self.stream) == seen else 0
            self.now_s = max(self.now_s, CALM_S)
            self.later(0.0, self._wake, least_s=30.0)
            self.later(0.0, self._train, least_s=31.0)
        return self

    def tell(self, fact: Any, again: bool = True) -> None:
        """The fact is stored: everybody will see it, in this order."""
        self.said[type(fact).__name__] += 1
        if again:
            self._check(fact)
        self.stream.append(fact)
        apply(self.truth, fact)
        if again and self.chance(0.04):
            self.later(8.0, lambda: self.tell(fact, again=False))
        if again:
            self._react(fact)
        if not self._is_woken:
            self._is_woken = True
            self.later(0.3, self._wake)

    # The scheduler's process

    def _wake(self) -> None:
        self._is_woken = False
        if self._outbox:
            return
        self._catch_up()
        decisions = decide(self._mine, self.now_s)
        if not decisions:
            return
        self._check_decisions(decisions)
        self._outbox = decisions
        self.later(0.1, self._publish)

    def _publish(self) -> None:
        """One decision at a time: facts of others come in between, and so does death."""
        if not self._outbox:
            return
        if self.chance(0.01):
            self._restart()
            return
        fact = self._outbox.pop(0)
        self.tell(fact)
        if self._outbox:
            self.later(0.05, self._publish)
            return
        self._catch_up()
        for group in list(self._mine.groups.values()):
            for message in tasks(self._mine, group):
                if group.executions[message.execution_id].state == ExecutionState.QUEUED:
                    self._offer(message)
        self.later(0.05, self._wake)

    def _catch_up(self) -> None:
        for fact in self.stream[self._folded :]:
            apply(self._mine, fact)
        self._folded = len(self.stream)
        if self.rng.random() < 0.1:
            self._snapshots = [*self._snapshots[-2:], (self._folded, encode_state(self._mine))]

    def _restart(self) -> None:
        """It dies with what it wanted to say, and starts from a snapshot, not always the newest, and the facts since."""
        self._folded, data = self.rng.choice(self._snapshots)
        self._mine, self._outbox = decode_state(data), []
        self._catch_up()
        assert self._mine == self.truth, "snapshot and tail are not the whole"
        for group in self._mine.groups.values():  # offered again: they may be there already
            for message in tasks(self._mine, group):
                if group.executions[message.execution_id].state == ExecutionState.QUEUED:
                    self._offer(message)
        self.later(0.3, self._wake)

    def _plan(self, number: int) -> None:
        self.tell(r.PlanChosen(
            plan=number, steps_per_publish=self.rng.randint(1, 3), extra_depth_steps=self.rng.choice((0.0, 1.0)),
            release_share=self.rng.choice((0.55, 1.0)), is_two_way=self.rng.random() < 0.5, order="submitted", at_s=self.now_s,
        ))  # fmt: skip

    # Submitters, work queue, gateways

    def _submit(self) -> None:
        steps = self.rng.randint(3, 8)
        for index in range(self.rng.randint(1, steps * self.settings.groups_per_step)):
            fact = facts.submitted(
                index, self.rng.randint(1, 3), self.rng.choice(("train", "train", "train", "evaluation")),
                tier=self.rng.choice(("short", "long")), task_type=self.rng.choice("ab"),
            )  # fmt: skip
            self.later(10.0, lambda fact=fact: self.tell(msgspec.structs.replace(fact, at_s=self.now_s)))
        self.later(5.0, lambda: self.tell(facts.started_run(1000, self.now_s)))

    def _offer(self, message: r.TaskDispatched) -> None:
        name = message.execution_id
        if name in self._offered:
            assert self._offered[name] == message, "the same task, made again, differs"
            return
        self._offered[name] = message
        self.later(1.0, lambda: self._deliver(name))

    def _deliver(self, name: str) -> None:
        """To a gateway that has not died yet."""
        if name in self._acknowledged:
            return
        self._deliveries[name] += 1
        attempt = self._offered[name].attempt_base + self._deliveries[name]
        assert (name, attempt) not in self.begun, "run twice as the same attempt"
        self.begun.add((name, attempt))
        self.later(0.2, lambda: self.tell(facts.leased(name, attempt, self.now_s)))
        if self.chance(0.1):  # dies before the environment is up
            self.later(0.0, lambda: self._deliver(name), least_s=LEASE_S)
            return
        self.later(0.5, lambda: self.tell(facts.running(name, attempt, self.now_s)), least_s=0.2)
        lasts_s = self.rng.lognormvariate(0.5, 0.8)
        if self.chance(0.15):  # dies while it runs; its last words may come when the next attempt is under way
            self.later(1.0, lambda: self._deliver(name), least_s=LEASE_S)
            if self.rng.random() < 0.5:
                self.later(LEASE_S * 2, lambda: self._end(name, attempt, lasts_s, is_dead=True), least_s=1.0)
            return
        self.later(0.0, lambda: self._end(name, attempt, lasts_s), least_s=0.7 + lasts_s)

    def _end(self, name: str, attempt: int, lasted_s: float, is_dead: bool = False) -> None:
        if self.truth.capacity == 0 and not is_dead:  # no cell answers its calls
            self.later(1.0, lambda: self._end(name, attempt, lasted_s), least_s=0.5)
            self._wake()  # the service looks again from time to time, without a fact
            return
        ending = self.rng.choice(("completed", "completed", "completed", "timed_out", "failed"))
        purpose = self._offered[name].task.purpose
        self.tell(facts.ended(name, attempt, ending, lasted_s, purpose, self._offered[name].task.task_type, self.now_s))
        if is_dead:
            return
        if self.chance(0.1):  # the acknowledgement is lost: it runs again and nobody wants it
            self.later(1.0, lambda: self._deliver(name), least_s=LEASE_S)
        else:
            self._acknowledged.add(name)

    def _command(self) -> None:
        running = [
            (name, execution)
            for group in self.truth.groups.values()
            for name, execution in group.executions.items()
            if execution.state in (ExecutionState.RUNNING, ExecutionState.QUEUED)
        ]
        if not running:
            return
        name, execution = self.rng.choice(running)
        group, attempt, ordinal = name.rpartition("-e")[0], max(1, execution.attempt), execution.commanded + 1
        command = self.rng.choice(("suspend", "void"))
        self.tell(r.ExecutionCommanded(
            execution_id=name, group_id=group, ordinal=ordinal, command=command, by="x", reason="y", at_s=self.now_s))  # fmt: skip
        if command == "void":
            self.later(1.0, lambda: self.tell(facts.ended(name, attempt, "voided", at_s=self.now_s)))
            return
        common = {"execution_id": name, "group_id": group, "attempt": attempt}
        self.later(1.0, lambda: self.tell(r.ExecutionSuspended(**common, ordinal=ordinal, at_s=self.now_s)))
        self.later(
            3.0, lambda: self.tell(r.ExecutionResumed(**common, ordinal=ordinal + 1, at_s=self.now_s)), least_s=1.0
        )

    # Trajectory processor and trainer

    def _react(self, fact: Any) -> None:
        match fact:
            case r.ExecutionEnded(purpose="train"):
                self.later(1.0, lambda: self._evaluate(fact.execution_id, fact.attempt))
            case r.RoleChanged():
                self.later(0.6, lambda: self._next_phase(fact.cell, fact.change))
            case r.CellReported() | r.BurstOpened() | r.SampleReady() | r.SampleDropped():
                pass
            case _:
                return
        self.later(0.4, self._train)

    def _evaluate(self, name: str, attempt: int) -> None:
        group = self.truth.groups.get(name.rpartition("-e")[0])
        execution = group.executions[name] if group else None
        if execution is None or execution.state not in ENDED:
            return
        if execution.attempt != attempt:
            self.tell(facts.dropped(name, attempt, "duplicate", self.now_s))
        elif execution.state == ExecutionState.VOIDED or self.rng.random() < 0.1:
            self.tell(facts.dropped(name, attempt, "voided", self.now_s))
        else:
            self.tell(facts.ready(name, attempt, self.now_s))

    def _next_phase(self, name: str, change: int) -> None:
        cell = self.truth.cells[name]
        if cell.change != change or cell.is_settled:
            return
        if cell.is_lost:
            self.later(1.0, lambda: self._next_phase(name, change), least_s=0.5)
            return
        phases = r.CELL_PHASES[cell.target]
        following = phases[phases.index(cell.phase) + 1]
        if cell.kind == "training":
            following = "training"
        self.tell(facts.role(name, change, cell.target, following, self.now_s))

    def _lose_cell(self) -> None:
        name = self.rng.choice(list(self.truth.cells))
        self.tell(r.CellReported(cell=name, capacity=0, at_s=self.now_s, reason="lost"))
        back = self.rng.choice((self.settings.cell_capacity, max(1, self.settings.cell_capacity - 1)))
        self.later(10.0, lambda: self.tell(r.CellReported(cell=name, capacity=back, at_s=self.now_s)))

    def _train(self) -> None:
        state, core = self.truth, self.truth.fleet.core
        if core.target != "training" or not core.is_settled or core.is_lost:
            return
        if self._batch is None:
            is_new = core.kind == "training" or core.burst >= state.burst or state.core_stays
            if not state.is_burst_open or not is_new or state.steps_done >= state.burst_end:
                return
            self._batch, self._is_closed = [], False
            self._wanted = max(1, self.settings.groups_per_step + self.rng.choice((-1, 0, 0, 0, 1, 2)))
        if self._is_closed:
            return
        ready = [group for group in state.groups.values() if group.is_trained and group.standing[0]]
        nothing_comes = state.untaken_groups == len(ready)
        missing = self._wanted - len(self._batch)
        if self.settings.streaming or len(ready) >= missing or nothing_comes:
            for group in ready[:missing]:
                self._batch.append(group.group_id)
                self.tell(facts.extended(state.steps_done, group.group_id, self._samples(group.group_id)))
        if len(self._batch) >= self._wanted:
            self._close("turns")
        elif state.untaken_groups == 0 and not self._is_starved():
            self.later(1.0, self._train, least_s=1.0)
        elif state.untaken_groups == 0:
            self._close("exhausted")

    def _is_starved(self) -> bool:
        """Nothing has been outstanding for a while; what waits was not sent in that time."""
        mark = (self.truth.dispatched, self.truth.steps_done)
        if getattr(self, "_mark", None) != mark:
            self._mark, self._starved_since_s = mark, self.now_s
        return self.now_s - self._starved_since_s > 3.0

    def _samples(self, group_id: str) -> list[str]:
        group = self.truth.groups[group_id]
        ready = (ExecutionState.READY, ExecutionState.CLAIMED)
        return [sample_id(name, e.attempt) for name, e in group.executions.items() if e.state in ready]

    def _close(self, cause: str) -> None:
        step = self.truth.steps_done
        self._is_closed = True
        samples = [sample for group in self._batch for sample in self._samples(group)]
        self.tell(facts.closed(step, self._batch, samples, cause, len(self._batch), self._wanted))
        self.later(2.0, lambda: self._update(step, samples))

    def _update(self, step: int, samples: list[str]) -> None:
        core = self.truth.fleet.core
        if core.target != "training" or not core.is_settled or core.is_lost:
            self.later(1.0, lambda: self._update(step, samples), least_s=0.5)
            self._wake()  # the service looks again from time to time, without a fact
            return
        self._batch = None
        self.trained.update(samples)
        self.tell(facts.updated(step, samples, self.now_s))
        if step + 1 == self.truth.burst_end:
            self.later(1.0, lambda: self.tell(facts.published(step + 1, self.now_s)))
        self.later(0.5, self._train)
