"""Does every trained sample's trace say where its time went, from dispatch to gradient? (E)

`coverage` answers: passed, traces, untraced (trained samples without a gradient span), deleted (trained samples of which spans were deleted as old:
left out of all else), over (traces beyond the line), line, unaccounted_share {mean, p95, max}, gaps [{after, before, total_s, traces}, the largest
first], worst [{sample_id, trace_id, unaccounted_share, unaccounted_s, total_s}].

core/covered.py says how a trace is measured.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from services.ledger.core.covered import Covered, covered
from services.ledger.core.moments import NS_PER_S
from services.ledger.queries.sql import rows

UNACCOUNTED_SHARE_MAX = 0.02
"""Line of a trace's time without a name."""
WORST_SHOWN = 10

DELETED_MARGIN_S = 1.0
"""A trace whose dispatch lies so little after the moment up to which spans were deleted is left out too: its first span may have ended before."""

TRAINED = f"""
SELECT t.sample_id, s.trace_id,
       CASE WHEN g.before_ns / 1e9 + {DELETED_MARGIN_S} > COALESCE(v.at_s, a.leased_at_s, s.at_s) THEN 1 ELSE 0 END AS deleted
FROM step_samples t JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id
LEFT JOIN spans_deleted g ON g.run = t.run
LEFT JOIN attempts a ON a.run = s.run AND a.execution_id = s.execution_id AND a.attempt = s.attempt
LEFT JOIN (SELECT run, group_id, min(at_s) AS at_s FROM dispatches WHERE run = :run GROUP BY run, group_id) v
       ON v.run = s.run AND v.group_id = s.group_id
WHERE t.run = :run
"""
"""`deleted`: 1 where the first span of its trace, which ends with the dispatch, may have been deleted."""

SPANS = """
SELECT trace_id, name, start_ns, end_ns FROM spans WHERE run = :run ORDER BY trace_id
"""
"""All of them, in the order in which they lie: joined to the trained samples in memory, where no planner can choose to look through
the spans of the run once for each sample."""


def coverage(connection: sa.Connection, run: str) -> dict[str, Any]:
    """Of every trained sample of the run whose spans are kept. A run without traces fails: nothing is accounted for."""
    known = rows(connection, TRAINED, run=run)
    trained = [row for row in known if not row["deleted"]]
    deleted = len(known) - len(trained)
    measured = list(_measured(connection, run, {row["trace_id"]: row["sample_id"] for row in trained}))
    untraced = len(trained) - len(measured)
    shares = sorted(trace.unaccounted_share for _, _, trace in measured)
    over = sum(share > UNACCOUNTED_SHARE_MAX for share in shares)
    return {
        "passed": bool(shares or deleted) and not over and not untraced,
        "traces": len(shares), "untraced": untraced, "deleted": deleted, "over": over, "line": UNACCOUNTED_SHARE_MAX,
        "unaccounted_share": {
            "mean": sum(shares) / len(shares) if shares else 0.0,
            "p95": shares[int(0.95 * (len(shares) - 1))] if shares else 0.0,
            "max": shares[-1] if shares else 0.0,
        },
        "gaps": _gaps(trace for _, _, trace in measured),
        "worst": [
            {
                "sample_id": sample, "trace_id": trace_id, "unaccounted_share": trace.unaccounted_share,
                "unaccounted_s": trace.unaccounted_ns / NS_PER_S, "total_s": trace.total_ns / NS_PER_S,
            }
            for sample, trace_id, trace in sorted(measured, key=lambda one: -one[2].unaccounted_share)[:WORST_SHOWN]
        ],
    }  # fmt: skip


def _measured(connection: sa.Connection, run: str, sample_of: dict[str, str]) -> Iterator[tuple[str, str, Covered]]:
    """(sample, trace, what is covered) of each sample that has a gradient span; `sample_of` is by trace."""
    found = connection.execute(sa.text(SPANS), {"run": run})
    for trace_id, spans in groupby(found, lambda row: row[0]):
        if trace_id in sample_of:
            in_order = sorted((start, end, name) for _, name, start, end in spans)
            trace = covered((name, start, end) for start, end, name in in_order)
            if trace.has_gradient:
                yield sample_of[trace_id], trace_id, trace


def _gaps(traces: Iterable[Covered]) -> list[dict[str, Any]]:
    """Summed over the traces by the spans at both sides."""
    total_ns: dict[tuple[str, str], int] = defaultdict(int)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for trace in traces:
        for gap in trace.gaps:
            total_ns[gap.after, gap.before] += gap.lasted_ns
        for sides in {(gap.after, gap.before) for gap in trace.gaps}:
            seen[sides] += 1
    return [
        {"after": after, "before": before, "total_s": lasted_ns / NS_PER_S, "traces": seen[after, before]}
        for (after, before), lasted_ns in sorted(total_ns.items(), key=lambda item: -item[1])
    ]
