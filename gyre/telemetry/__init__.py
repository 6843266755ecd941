"""Traces: one for each execution from dispatch to gradient, across all processes.

Context travels as W3C `traceparent` in NATS headers, records and gRPC metadata. Work never waits for telemetry and never fails through it: spans are
exported in the background, and what had to be dropped is counted.
"""

from gyre.telemetry.setup import dropped_spans, setup, shutdown
from gyre.telemetry.spans import begin_span, current_traceparent, emit_span, span, span_context, traceparent_of

__all__ = [
    "begin_span",
    "current_traceparent",
    "dropped_spans",
    "emit_span",
    "setup",
    "shutdown",
    "span",
    "span_context",
    "traceparent_of",
]
