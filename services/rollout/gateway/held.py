"""A task's delivery in hand, with the span of the attempt that it is for."""

from dataclasses import dataclass

from opentelemetry import trace

from gyre.bus import Delivery
from gyre.telemetry import span_context, traceparent_of
from services.rollout.core.leases import Lease


@dataclass(eq=False)
class Held:
    """The delivery is the lease: life signs keep it, an acknowledgement or its return ends it."""

    delivery: Delivery
    span: trace.Span
    traceparent: str

    @classmethod
    def of(cls, lease: Lease, delivery: Delivery) -> "Held":
        """The span `execution` begins, below the dispatch that the delivery's traceparent names."""
        context = span_context(delivery.traceparent)
        parent = trace.set_span_in_context(trace.NonRecordingSpan(context)) if context else None
        attributes = {
            "gyre.execution": lease.execution_id,
            "gyre.attempt": lease.attempt,
            "gyre.task_type": lease.task.task.task_type,
        }
        span = trace.get_tracer("gyre").start_span("execution", context=parent, attributes=attributes)
        return cls(delivery, span, traceparent_of(span) or delivery.traceparent)

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
