"""Who runs what: attached environments, leased executions, which attempt's words count (fenced attempts, OpenEnv#1143).

    offered ─▶ assigned ─▶ running ─▶ ended
       │           │           │
       │           └───────────┴── environment silent for lease_s ─▶ lost: given out again as the next attempt
       └── no environment can take it now ─▶ parked

Times are passed in. An environment's stream may break and come back; until lease_s has passed its executions are still its.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum

from gyre.errors import Conflict, InvalidInput, NotFound
from gyre.records import TaskDispatched

START_S = 120.0
"""An environment that has not said Started for this long after its assignment has hung."""
GRACE_MIN_S = 5.0
GRACE_SHARE = 0.2
"""Beyond its wall clock an execution gets this long (the larger of both) for its evaluation and its ending to arrive."""
ENDED_KEPT = 10_000
"""Endings that are remembered, for repeats of `Ended`: far more than can be in flight."""
SLOTS_MAX = 10_000


class Offer(StrEnum):
    """What to do with a delivered task."""

    ASSIGN = "assign"
    """A new attempt begins at the lease's environment."""
    CONTINUE = "continue"
    """An attached environment runs it already: the same attempt goes on."""
    PARK = "park"
    """Nobody can take it now; keep the delivery and offer it again."""
    EXHAUSTED = "exhausted"
    """It had its attempts."""
    OVER = "over"
    """Its ending is on record."""


class Attempts:
    """The newest attempt of each unfinished execution, and recent endings."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._released: dict[str, int] = {}
        """Attempts that were commanded to be given up: fenced before there is a newer one."""
        self._on_record: dict[str, set[int]] = {}
        """Attempts whose lease is on record."""
        self._ended: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._newest)

    def leased(self, execution_id: str, attempt: int) -> None:
        """Older attempts are fenced from here on. What is said late about an older one changes nothing."""
        if attempt > max(self._newest.get(execution_id, 0), self._ended.get(execution_id, 0)):
            self._newest[execution_id] = attempt
            self._released.pop(execution_id, None)

    def recorded(self, execution_id: str, attempt: int) -> None:
        """Its lease is on record: an attempt that counts as made. Repeats change nothing."""
        self.leased(execution_id, attempt)
        if execution_id in self._newest:
            self._on_record.setdefault(execution_id, set()).add(attempt)

    def made(self, execution_id: str, attempt_base: int) -> int:
        """How many attempts of the dispatch that begins after `attempt_base` have their lease on record."""
        return sum(attempt > attempt_base for attempt in self._on_record.get(execution_id, ()))

    def fence(self, execution_id: str) -> None:
        """The present attempt's words count no longer (C2)."""
        if (newest := self._newest.get(execution_id)) is not None:
            self._released[execution_id] = newest

    def ended(self, execution_id: str, attempt: int) -> None:
        if self._newest.get(execution_id, 0) <= attempt:
            for memory in (self._newest, self._released, self._on_record):
                memory.pop(execution_id, None)
        self._ended[execution_id] = max(attempt, self._ended.pop(execution_id, 0))
        while len(self._ended) > ENDED_KEPT:
            self._ended.popitem(last=False)

    def is_current(self, execution_id: str, attempt: int) -> bool:
        return self._newest.get(execution_id) == attempt != self._released.get(execution_id)

    def has_ended(self, execution_id: str, attempt: int) -> bool:
        """Exactly this attempt's ending is on record."""
        return self._ended.get(execution_id) == attempt

    def newest(self, execution_id: str) -> int:
        """0 when it is not under way."""
        return self._newest.get(execution_id, 0)

    def ended_attempt(self, execution_id: str) -> int:
        """0 when no ending is remembered."""
        return self._ended.get(execution_id, 0)

    def unfinished(self) -> list[str]:
        return list(self._newest)


@dataclass(slots=True)
class Attachment:
    """One environment process."""

    instance_id: str
    environment: str
    slots: int
    heard_s: float
    connected: bool = True
    executions: dict[str, int] = field(default_factory=dict)
    """What it runs: execution → attempt, also executions whose lease has not come back to this gateway yet."""

    @property
    def free(self) -> int:
        return self.slots - len(self.executions) if self.connected else 0


@dataclass(slots=True)
class Lease:
    """One execution in the hands of an environment."""

    task: TaskDispatched
    attempt: int
    instance_id: str
    leased_s: float
    started_s: float | None = None
    suspended_s: float | None = None
    """Since when it is suspended; None: it goes on."""
    paused_s: float = 0.0
    """Seconds for which it was suspended, up to `suspended_s`."""

    @property
    def execution_id(self) -> str:
        return self.task.execution_id

    def deadline_s(self) -> float:
        """When the server stops waiting; a suspension moves it by its length."""
        if self.started_s is None:
            return self.leased_s + START_S
        if self.suspended_s is not None:
            return math.inf
        wall_s = self.task.task.limits.wall_s
        return self.started_s + self.paused_s + wall_s + max(GRACE_MIN_S, GRACE_SHARE * wall_s)

    def suspend(self, now_s: float) -> None:
        """Repeats change nothing."""
        if self.suspended_s is None:
            self.suspended_s = now_s

    def resume(self, now_s: float) -> None:
        """Repeats change nothing."""
        if self.suspended_s is not None:
            self.paused_s += now_s - self.suspended_s
            self.suspended_s = None


class LeaseBook:
    """All attachments and leases of this gateway."""

    def __init__(self, attempts: Attempts, lease_s: float, attempts_max: int, now_s: float) -> None:
        """`attempts` as folded from the facts: what it holds at `now_s` may still run at environments that will reconnect."""
        self.attempts = attempts
        self.attachments: dict[str, Attachment] = {}
        self.leases: dict[str, Lease] = {}
        self._lease_s = lease_s
        self._attempts_max = attempts_max
        self._starting = {
            execution: attempts.newest(execution)
            for execution in attempts.unfinished()
            if attempts.is_current(execution, attempts.newest(execution))
        }
        """Leased before this process was: for a lease their environments may come here."""
        self._starting_until_s = now_s + lease_s
        self._orphans: dict[str, tuple[int, float]] = {}
        """Leased at another gateway that is gone: attempt, and until when its environment may come here."""

    def orphaned(self, execution_id: str, now_s: float) -> None:
        """Its gateway is gone: for lease_s its environment may come here and go on with it. Repeats change nothing."""
        newest, (known, _) = self.attempts.newest(execution_id), self._orphans.get(execution_id, (0, 0.0))
        if known != newest and self.attempts.is_current(execution_id, newest):
            self._orphans[execution_id] = newest, now_s + self._lease_s

    def adopted(self, execution_id: str) -> None:
        """It is no orphan, or no more."""
        self._orphans.pop(execution_id, None)
        self._starting.pop(execution_id, None)

    def _awaited(self, execution_id: str, now_s: float) -> int:
        """The attempt whose environment may still come here; 0 for none."""
        begun = self._starting.get(execution_id, 0), self._starting_until_s
        attempt, until_s = self._orphans.get(execution_id, begun)
        return attempt if now_s < until_s else 0

    def attach(self, hello: Attachment, now_s: float) -> list[tuple[str, int]]:
        """A process (again) says what it runs; answers which of that is no longer wanted. Raises InvalidInput."""
        if not 1 <= hello.slots <= SLOTS_MAX:
            raise InvalidInput(f"slots is {hello.slots}; 1 to {SLOTS_MAX} are possible")
        if not hello.environment or not hello.instance_id:
            raise InvalidInput("hello must name its environment and its instance_id")
        unknown = []
        for execution, attempt in list(hello.executions.items()):
            lease = self.leases.get(execution)
            if self.attempts.is_current(execution, attempt) and (
                lease is None or lease.instance_id == hello.instance_id
            ):
                continue
            if not self.attempts.has_ended(execution, attempt):
                unknown.append((execution, attempt))
            del hello.executions[execution]
        self.attachments[hello.instance_id] = hello
        hello.heard_s = now_s
        for lease in self.leases.values():
            if lease.instance_id == hello.instance_id and lease.execution_id not in hello.executions:
                # Assigned, but the message was lost with the stream: it is assigned again.
                hello.executions[lease.execution_id] = lease.attempt
        return unknown

    def detach(self, instance_id: str, now_s: float) -> None:
        """The stream broke; lease_s runs from now."""
        if (attachment := self.attachments.get(instance_id)) is not None:
            attachment.connected = False
            attachment.heard_s = now_s

    def heard(self, instance_id: str, now_s: float) -> None:
        self.attachments[instance_id].heard_s = now_s

    def free_slots(self) -> int:
        return sum(max(0, attachment.free) for attachment in self.attachments.values())

    def awaits_leases(self) -> bool:
        """Something runs whose lease has not come back yet (an earlier gateway held it): its task must be taken, slots or not."""
        return any(
            execution not in self.leases
            for attachment in self.attachments.values()
            for execution in attachment.executions
        )

    def offer(
        self, task: TaskDispatched, deliveries: int, now_s: float, releases: int = 0
    ) -> tuple[Offer, Lease | None]:
        """A task was delivered, or a parked one is offered again.

        `deliveries` only number the next attempt, so that no two gateways give one number to two: a task may be delivered many times before
        anybody has a place for it, and go on as the same attempt over many more. `releases`: attempts that nobody lost."""
        execution = task.execution_id
        if self.attempts.ended_attempt(execution) > task.attempt_base:
            return Offer.OVER, None
        if (lease := self.leases.get(execution)) is not None and lease.attempt > task.attempt_base:
            return Offer.CONTINUE, lease
        runner = self._runner(execution, self.attempts.newest(execution))
        if runner is not None and runner.executions[execution] > task.attempt_base:
            self.adopted(execution)
            lease = Lease(task, runner.executions[execution], runner.instance_id, now_s, now_s)
            self.leases[execution] = lease
            return Offer.CONTINUE, lease
        if self._awaited(execution, now_s) > task.attempt_base:
            return Offer.PARK, None
        if self.attempts.made(execution, task.attempt_base) - releases >= self._attempts_max:
            return Offer.EXHAUSTED, None
        fitting = [a for a in self.attachments.values() if a.environment == task.task.environment and a.free > 0]
        if not fitting:
            return Offer.PARK, None
        chosen = max(fitting, key=lambda attachment: attachment.free)
        attempt = max(task.attempt_base + deliveries, self.attempts.newest(execution) + 1)
        lease = Lease(task, attempt, chosen.instance_id, now_s)
        self.adopted(execution)
        chosen.executions[execution] = attempt
        self.leases[execution] = lease
        self.attempts.leased(execution, attempt)
        return Offer.ASSIGN, lease

    def find(self, instance_id: str, execution_id: str, attempt: int) -> Lease | None:
        """The lease a message is about; None when the execution runs here but its lease has not come back yet.

        Raises NotFound for an execution that is not under way, Conflict for another attempt or another environment's."""
        newest = self.attempts.newest(execution_id)
        if newest == 0:
            raise NotFound(f"{execution_id} is not under way")
        if attempt != newest:
            raise Conflict(f"{execution_id}: attempt {attempt} is fenced, attempt {newest} counts")
        if not self.attempts.is_current(execution_id, attempt):
            raise Conflict(f"{execution_id}: attempt {attempt} was released and is given out again")
        attachment = self.attachments.get(instance_id)
        if attachment is None or attachment.executions.get(execution_id) != attempt:
            raise Conflict(f"{execution_id} attempt {attempt} is not assigned to this environment")
        return self.leases.get(execution_id)

    def release(self, execution_id: str) -> Lease | None:
        """The execution no longer occupies its environment's slot here."""
        lease = self.leases.pop(execution_id, None)
        for attachment in self.attachments.values():
            attachment.executions.pop(execution_id, None)
        return lease

    def stop_below(self, execution_id: str, attempt: int) -> list[tuple[str, int]]:
        """Attempts below `attempt` count no longer: (instance, attempt) of those that run here, whose slots are free from now on."""
        stopped = []
        for attachment in self.attachments.values():
            if 0 < (older := attachment.executions.get(execution_id, 0)) < attempt:
                del attachment.executions[execution_id]
                stopped.append((attachment.instance_id, older))
        return stopped

    def overdue(self, now_s: float) -> list[Lease]:
        """Leases whose server-side deadline has passed."""
        return [lease for lease in self.leases.values() if now_s > lease.deadline_s()]

    def lost(self, now_s: float) -> list[Lease]:
        """Leases of environments that were silent for lease_s; those environments are forgotten."""
        silent = [a for a in self.attachments.values() if now_s - a.heard_s > self._lease_s]
        for attachment in silent:
            del self.attachments[attachment.instance_id]
        gone = {attachment.instance_id for attachment in silent}
        return [lease for lease in self.leases.values() if lease.instance_id in gone]

    def may_still_run(self, execution_id: str, now_s: float) -> bool:
        """An attached environment runs it, or one that an earlier gateway process knew may yet say so."""
        return self.runs(execution_id) or self._awaited(execution_id, now_s) > 0

    def runs(self, execution_id: str) -> bool:
        """An attached environment runs its present attempt."""
        return self._runner(execution_id, self.attempts.newest(execution_id)) is not None

    def _runner(self, execution_id: str, attempt: int) -> Attachment | None:
        """None for an attempt that was released, though its environment may not know it yet."""
        if not self.attempts.is_current(execution_id, attempt):
            return None
        for attachment in self.attachments.values():
            if attempt and attachment.executions.get(execution_id) == attempt:
                return attachment
        return None
