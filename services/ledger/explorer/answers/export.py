"""The rows behind a page as files: JSON lines, and a trace that ui.perfetto.dev and chrome://tracing open.

`rows.jsonl` has what `listing` tells of each attempt, a line each. `perfetto.json` is in Chrome's trace event format (JSON object form): a process
for the executions, a thread each, with its stages and the versions that sampled it; one for the cells with their roles; of a single sample its
spans too.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import sqlalchemy as sa

from services.ledger.explorer.answers.attempts import Attempt, details, newest
from services.ledger.explorer.answers.clock import policy_clock, roles
from services.ledger.explorer.answers.listing import row
from services.ledger.explorer.answers.sample import sample
from services.ledger.explorer.answers.segments import segments_of
from services.ledger.explorer.scope import Scope

TRACE_MAX = 2_000
"""Executions of one trace."""
EXECUTIONS, CELLS, SPANS = 1, 2, 3
"""Process numbers."""
US_PER_S = 1e6


def lines(connection: sa.Connection, scope: Scope) -> bytes:
    """JSON lines, newest first."""
    attempts = details(connection, scope, newest(connection, scope))
    return b"".join(msgspec.json.encode(row(attempt)) + b"\n" for attempt in attempts)


def perfetto(connection: sa.Connection, scope: Scope) -> bytes:
    """A JSON object with `traceEvents`, times in microseconds."""
    scope = replace(scope, limit=min(scope.limit, TRACE_MAX))
    ids = newest(connection, scope)
    clock = policy_clock(connection, scope.run)
    attempts = details(connection, scope, ids)
    segments = segments_of(connection, scope.run, [attempt.sample_id for attempt in attempts])
    events = [*_named(EXECUTIONS, "executions"), *_named(CELLS, "cells")]
    for thread, attempt in enumerate(attempts, 1):
        events += _thread(EXECUTIONS, thread, attempt.sample_id)
        events += _stages(thread, attempt)
        events += [
            _slice(EXECUTIONS, thread, f"version {version}", begin, end, {"version": version})
            for begin, end, version in segments.of(thread - 1)
        ]
    cells = {}
    for span in roles(connection, scope.run, clock.now_s):
        if span["cell"] not in cells:
            cells[span["cell"]] = len(cells) + 1
            events += _thread(CELLS, cells[span["cell"]], span["cell"])
        events.append(_slice(CELLS, cells[span["cell"]], span["role"], span["from_s"], span["to_s"], {}))
    events += [
        {"ph": "i", "s": "g", "pid": CELLS, "tid": 0, "name": f"publish {one['version']}", "ts": one["at_s"] * US_PER_S}
        for one in clock.published
    ]
    if scope.sample:
        events += _spans(connection, scope)
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _stages(thread: int, attempt: Attempt) -> Iterator[dict[str, Any]]:
    marks = [
        ("queued", attempt.dispatched_at_s), ("starting", attempt.leased_at_s), ("running", attempt.started_at_s), ("evaluating", attempt.ended_at_s),
        ("waiting for batch", attempt.ready_at_s), ("waiting for trainer", attempt.closed_at_s), ("", attempt.trained_at_s or attempt.dropped_at_s),
    ]  # fmt: skip
    known = [(name, at_s) for name, at_s in marks if at_s is not None]
    about = {"group": attempt.group_id, "dispatched": attempt.dispatched, "step": attempt.step, "state": attempt.state}
    for (name, begin), (_, end) in pairwise(known):
        yield _slice(EXECUTIONS, thread, name, begin, end, about)


def _spans(connection: sa.Connection, scope: Scope) -> Iterator[dict[str, Any]]:
    yield from _named(SPANS, f"spans of {scope.sample}")
    services: dict[str, int] = {}
    for span in sample(connection, scope)["spans"]:
        thread = services.setdefault(span["service"], len(services) + 1)
        if thread == len(services):
            yield from _thread(SPANS, thread, span["service"])
        yield _slice(
            SPANS, thread, span["name"], span["start_ns"] / 1e9, span["end_ns"] / 1e9, span["attributes"] or {}
        )


def _named(process: int, name: str) -> list[dict[str, Any]]:
    return [{"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}]


def _thread(process: int, thread: int, name: str) -> list[dict[str, Any]]:
    return [{"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}]


def _slice(process: int, thread: int, name: str, begin_s: float, end_s: float, about: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X", "pid": process, "tid": thread, "name": name, "ts": begin_s * US_PER_S, "dur": max(0.0, end_s - begin_s) * US_PER_S, "args": about,
    }  # fmt: skip


FORMATS: dict[str, tuple[Callable[[sa.Connection, Scope], bytes], str]] = {
    "rows.jsonl": (lines, "application/x-ndjson"),
    "perfetto.json": (perfetto, "application/json"),
}
"""File name → who makes it, and its type."""
