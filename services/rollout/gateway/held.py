"""What this gateway has in its hands: deliveries with the spans of their attempts, and what is known of each."""

import asyncio
from dataclasses import dataclass, field

from opentelemetry import trace

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.bus import Delivery
from gyre.telemetry import begin_span, traceparent_of
from services.rollout.core.leases import Lease, LeaseBook
from services.rollout.gateway.messages import sample_of
from services.rollout.gateway.restore import Restored


@dataclass(eq=False)
class Held:
    """The delivery is the lease: life signs keep it, an acknowledgement or its return ends it."""

    delivery: Delivery
    span: trace.Span
    traceparent: str
    is_lapsed: bool = False
    """It was not signed for a lease: the queue has delivered it again, or will, and another gateway may have it."""

    @classmethod
    def of(cls, lease: Lease, delivery: Delivery) -> "Held":
        """The span `execution` begins, below the dispatch that the delivery's traceparent names."""
        span = begin_span(
            "execution", delivery.traceparent, gyre_execution=lease.execution_id, gyre_attempt=lease.attempt,
            gyre_task_type=lease.task.task.task_type,
        )  # fmt: skip
        return cls(delivery, span, traceparent_of(span) or delivery.traceparent)

    def renew(self, delivery: Delivery) -> None:
        """It was delivered again, to us."""
        self.delivery, self.is_lapsed = delivery, False

    def ended(self, ending: str, reason: str, turns: int) -> None:
        """The attempt's ending is on record."""
        self.span.set_attributes({"gyre.ending": ending, "gyre.reason": reason, "gyre.turns": turns})
        if ending == "failed":
            self.span.set_status(trace.Status(trace.StatusCode.ERROR, reason))
        self.span.end()

    def lost(self, reason: str) -> None:
        """Another attempt follows."""
        self.span.set_status(trace.Status(trace.StatusCode.ERROR, reason))
        self.span.end()


@dataclass(eq=False)
class Hands:
    """All executions in this gateway's hands."""

    book: LeaseBook
    restored: Restored
    held: dict[str, Held] = field(default_factory=dict)
    """By execution: leased, and the lease has come back to this gateway."""
    parked: dict[str, Delivery] = field(default_factory=dict)
    """Tasks that nobody can take now."""
    early: dict[str, list[tuple[str, pb.AttachRequest]]] = field(default_factory=dict)
    """Messages about executions whose lease has not come back to this gateway yet, with who said them."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Something that a waiting task may have waited for."""

    def lease(self, execution_id: str) -> Lease | None:
        """The lease in this gateway's hands."""
        return self.book.leases.get(execution_id) if execution_id in self.held else None

    def has(self, held: Held) -> bool:
        """It is still in hand: neither ended, given back nor superseded."""
        return self.held.get(held.delivery.record.execution_id) is held

    def take(self, lease: Lease, delivery: Delivery) -> Held:
        held = self.held[lease.execution_id] = Held.of(lease, delivery)
        return held

    def lapse(self) -> None:
        """Nothing was signed for a lease."""
        for held in self.held.values():
            held.is_lapsed = True
        self.parked.clear()

    def deliveries(self) -> list[Delivery]:
        """All that needs signs of life."""
        return [*(held.delivery for held in self.held.values()), *self.parked.values()]

    def times(self, sample: str) -> tuple[float, float]:
        """(leased, started), clock seconds; 0 for what has not happened."""
        return self.restored.leased_at_s.get(sample, 0.0), self.restored.started_at_s.get(sample, 0.0)

    def forget_times(self, sample: str) -> None:
        self.restored.leased_at_s.pop(sample, None)
        self.restored.started_at_s.pop(sample, None)

    def let_go(self, execution_id: str) -> Held | None:
        """The execution occupies no slot and no hand any more."""
        self.book.release(execution_id)
        self.early.pop(execution_id, None)
        self.changed.set()
        return self.held.pop(execution_id, None)

    def drop(self, lease: Lease) -> None:
        """Over, or fenced: its times are wanted no longer either. A newer lease of the execution stays."""
        if self.book.leases.get(lease.execution_id, lease) is lease:
            self.let_go(lease.execution_id)
        self.forget_times(sample_of(lease))
