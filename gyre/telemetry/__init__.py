"""Traces: one for each execution from dispatch to gradient, across all processes.

Context travels as W3C `traceparent` in NATS headers, records and gRPC metadata. Work never waits for telemetry and never fails through it: spans are
exported in the background, and what had to be dropped is counted.
"""

from gyre.telemetry.setup import client_interceptors, dropped_spans, server_interceptors, setup, shutdown
from gyre.telemetry.spans import current_traceparent, emit_span, span, span_context, traceparent_of

__all__ = [
    "client_interceptors",
    "current_traceparent",
    "dropped_spans",
    "emit_span",
    "server_interceptors",
    "setup",
    "shutdown",
    "span",
    "span_context",
    "traceparent_of",
]
