"""The spans of one trace, and where its time went.

`trace` answers: trace_id, sample_id (empty when asked by trace), spans [in order of start], stages, total_s, unaccounted_s.
A stage is a span name: {stage, count, total_s, start_s (after the trace's begin), end_s}.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from gyre.errors import NotFound
from services.ledger.core.moments import NS_PER_S
from services.ledger.queries.sql import one, rows, unpacked

SPANS = """
SELECT trace_id, span_id, parent_id, name, service, start_ns, end_ns, attributes_json, links_json, links_dropped, status,
       status_message
FROM spans WHERE run = :run AND trace_id = :trace_id ORDER BY start_ns, span_id
"""

TRACE_OF = """
SELECT trace_id FROM samples WHERE run = :run AND sample_id = :id AND trace_id <> ''
UNION SELECT trace_id FROM drops WHERE run = :run AND sample_id = :id AND trace_id <> ''
UNION SELECT trace_id FROM attempts WHERE run = :run AND sample_id = :id AND trace_id <> ''
"""


def trace(connection: sa.Connection, run: str, name: str) -> dict[str, Any]:
    """`name` is a sample id or a trace id. Raises NotFound when there is no span."""
    trace_id = one(connection, TRACE_OF, run=run, id=name).get("trace_id", "")
    found = spans(connection, run, trace_id or name)
    if not found:
        raise NotFound(f"no spans for {name}: no such sample or trace, or tracing was off (`ledger.traces`)")
    return {"trace_id": trace_id or name, "sample_id": name if trace_id else "", "spans": found, **stages(found)}


def spans(connection: sa.Connection, run: str, trace_id: str) -> list[dict[str, Any]]:
    return [unpacked(row) for row in rows(connection, SPANS, run=run, trace_id=trace_id)]


def stages(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Durations by span name; unaccounted is what no span covers, a parent that spans the whole trace aside."""
    if not found:
        return {"stages": [], "total_s": 0.0, "unaccounted_s": 0.0}
    begin_ns, end_ns = min(span["start_ns"] for span in found), max(span["end_ns"] for span in found)
    parents = {span["parent_id"] for span in found}
    inner = [
        span for span in found
        if span["span_id"] not in parents or (span["start_ns"], span["end_ns"]) != (begin_ns, end_ns)
    ]  # fmt: skip
    named: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in found:
        named[span["name"]].append(span)
    total_s = (end_ns - begin_ns) / NS_PER_S
    return {
        "stages": [
            {
                "stage": name, "count": len(group),
                "total_s": sum(span["end_ns"] - span["start_ns"] for span in group) / NS_PER_S,
                "start_s": (min(span["start_ns"] for span in group) - begin_ns) / NS_PER_S,
                "end_s": (max(span["end_ns"] for span in group) - begin_ns) / NS_PER_S,
            }
            for name, group in named.items()
        ],
        "total_s": total_s,
        "unaccounted_s": total_s - covered_ns((span["start_ns"], span["end_ns"]) for span in inner) / NS_PER_S,
    }  # fmt: skip


def covered_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Length of the union of intervals."""
    covered, until = 0, None
    for start, end in sorted(intervals):
        if until is None or start > until:
            covered, until = covered + max(end - start, 0), max(start, end)
        elif end > until:
            covered, until = covered + end - until, end
    return covered
