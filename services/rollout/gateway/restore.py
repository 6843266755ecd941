"""What a gateway knows when it starts: everything an earlier one had put on record (the harness's next retry finds the same tokens)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gyre.bus import Bus
from gyre.ids import sample_id
from gyre.records import (
    CallRecorded,
    ExecutionCommanded,
    ExecutionEnded,
    ExecutionLeased,
    ExecutionResumed,
    ExecutionStarted,
    ExecutionSuspended,
)
from services.rollout.core.commands import Orders
from services.rollout.core.leases import Attempts, Lease

_TYPES = (
    ExecutionLeased, ExecutionStarted, ExecutionEnded, CallRecorded, ExecutionCommanded, ExecutionSuspended, ExecutionResumed,
)  # fmt: skip


@dataclass
class Restored:
    """Unfinished executions as the facts have them."""

    attempts: Attempts = field(default_factory=Attempts)
    leased_at_s: dict[str, float] = field(default_factory=dict)
    """By sample id, as are the next two."""
    started_at_s: dict[str, float] = field(default_factory=dict)
    calls: dict[str, list[CallRecorded]] = field(default_factory=dict)
    orders: Orders = field(default_factory=Orders)
    holders: dict[str, str] = field(default_factory=dict)
    """Execution under way → gateway that leased it."""
    sequence: int = 0
    """Newest fact folded."""

    def apply(self, fact: object) -> None:
        match fact:
            case ExecutionCommanded():
                is_over = self.attempts.ended_attempt(fact.execution_id) and not self.attempts.newest(fact.execution_id)
                if not is_over and self.orders.apply(fact) and fact.command == "release":
                    self.attempts.fence(fact.execution_id)
            case ExecutionLeased():
                self.attempts.recorded(fact.execution_id, fact.attempt)
                self.leased_at_s[sample_id(fact.execution_id, fact.attempt)] = fact.at_s
                self.holders[fact.execution_id] = fact.holder
            case ExecutionStarted():
                self.started_at_s[sample_id(fact.execution_id, fact.attempt)] = fact.at_s
            case CallRecorded():
                self.calls.setdefault(sample_id(fact.execution_id, fact.attempt), []).append(fact)
            case ExecutionEnded():
                self.attempts.ended(fact.execution_id, fact.attempt)
                self.holders.pop(fact.execution_id, None)
                for attempt in range(1, fact.attempt + 1):
                    self._forget(sample_id(fact.execution_id, attempt))

        if not isinstance(fact, ExecutionCommanded):
            self.orders.apply(fact)

    def resume(self, lease: Lease, now_s: float, monotonic_s: float) -> None:
        """An attempt that goes on: since when it runs, and how long of that it was suspended."""
        started_at_s = self.started_at_s.get(sample_id(lease.execution_id, lease.attempt))
        lease.started_s = monotonic_s - (now_s - started_at_s) if started_at_s is not None else None
        lease.paused_s = self.orders.paused_s(lease.execution_id, lease.attempt, now_s)
        if self.orders.is_held(lease.execution_id):
            lease.suspend(monotonic_s)

    def _forget(self, sample: str) -> None:
        for memory in (self.leased_at_s, self.started_at_s, self.calls):
            memory.pop(sample, None)

    def sessions(self) -> Iterator[tuple[str, list[CallRecorded]]]:
        """Samples of the newest attempts with their records in stream order; they are handed out once."""
        calls, self.calls = self.calls, {}
        for execution in self.attempts.unfinished():
            sample = sample_id(execution, self.attempts.newest(execution))
            if sample in calls:
                yield sample, calls.pop(sample)


async def restore(bus: Bus) -> Restored:
    """Fold the facts up to the newest present now."""
    restored = Restored()
    newest = await bus.last_sequence(_TYPES)
    if newest:
        async for fact, delivery in bus.follow(_TYPES):
            restored.apply(fact)
            restored.sequence = delivery.sequence
            if delivery.sequence >= newest:
                break
    return restored
