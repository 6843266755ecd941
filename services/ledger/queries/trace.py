"""The spans of one trace, and where its time went.

`trace` answers: trace_id, sample_id (empty when asked by trace), spans [in order of start], stages, total_s, unaccounted_s.
A stage is a span name: {stage, count, total_s, start_s (after the trace's begin), end_s}. core/covered.py says what `total_s` and
`unaccounted_s` are.
"""

from collections import defaultdict
from typing import Any

import sqlalchemy as sa

from gyre.errors import NotFound
from services.ledger.core.covered import covered
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
        raise NotFound(
            f"no spans for {name}: no such sample or trace, tracing was off (`ledger.traces`), or they were deleted as old"
        )
    return {"trace_id": trace_id or name, "sample_id": name if trace_id else "", "spans": found, **stages(found)}


def spans(connection: sa.Connection, run: str, trace_id: str) -> list[dict[str, Any]]:
    return [unpacked(row) for row in rows(connection, SPANS, run=run, trace_id=trace_id)]


def stages(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Durations by span name, and how much of the trace has no name. `found` in order of start."""
    if not found:
        return {"stages": [], "total_s": 0.0, "unaccounted_s": 0.0}
    begin_ns = found[0]["start_ns"]
    measured = covered((span["name"], span["start_ns"], span["end_ns"]) for span in found)
    named: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for span in found:
        named[span["name"]].append(span)
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
        "total_s": measured.total_ns / NS_PER_S,
        "unaccounted_s": measured.unaccounted_ns / NS_PER_S,
    }  # fmt: skip
