"""Does every trained sample's trace say where its time went, from dispatch to gradient? (E)

`coverage` answers: passed, traces, untraced (trained samples without a gradient span), over (traces beyond the line), line,
unaccounted_share {mean, p95, max}, gaps [{after, before, total_s, traces}, the largest first], worst [{sample_id, trace_id,
unaccounted_share, unaccounted_s, total_s}].

A trace is measured from its first span's begin to the end of the sample's first `train.gradient`; what an elite sample does later is another
story. The span `execution` is a container (it lies over everything that happens in it) and accounts for nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from services.ledger.core.moments import NS_PER_S
from services.ledger.queries.sql import rows

UNACCOUNTED_SHARE_MAX = 0.02
"""Line of a trace's time without a name."""
CONTAINERS = frozenset({"execution"})
GRADIENT = "train.gradient"
WORST_SHOWN = 10

TRAINED = """
SELECT t.sample_id, s.trace_id FROM step_samples t JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id
WHERE t.run = :run
"""

SPANS = """
SELECT trace_id, name, start_ns, end_ns FROM spans WHERE run = :run ORDER BY trace_id
"""
"""All of them, in the order in which they lie: joined to the trained samples in memory, where no planner can choose to look through
the spans of the run once for each sample."""


@dataclass(frozen=True)
class Gap:
    """Time between two spans that no span covers."""

    after: str
    before: str
    lasted_ns: int


@dataclass(frozen=True)
class Covered:
    """One trace: its length, and the gaps in it."""

    total_ns: int
    gaps: tuple[Gap, ...]

    @property
    def unaccounted_ns(self) -> int:
        return sum(gap.lasted_ns for gap in self.gaps)

    @property
    def unaccounted_share(self) -> float:
        return self.unaccounted_ns / self.total_ns if self.total_ns else 0.0


def covered(spans: Iterable[tuple[str, int, int]]) -> Covered | None:
    """`spans` (name, start_ns, end_ns) in order of start; None where no gradient is among them."""
    found = list(spans)
    end_ns = min((end for name, _, end in found if name == GRADIENT), default=None)
    if end_ns is None:
        return None
    begin_ns = until_ns = found[0][1]
    gaps, last = [], ""
    for name, start, end in found:
        if name in CONTAINERS or start >= end_ns:
            continue
        if start > until_ns:
            gaps.append(Gap(_stage(last), _stage(name), start - until_ns))
        if end > until_ns:
            until_ns, last = min(end, end_ns), name
    return Covered(end_ns - begin_ns, tuple(gaps))


def coverage(connection: sa.Connection, run: str) -> dict[str, Any]:
    """Of every trained sample of the run. A run without traces fails: nothing is accounted for."""
    trained = rows(connection, TRAINED, run=run)
    measured = list(_measured(connection, run, {row["trace_id"]: row["sample_id"] for row in trained}))
    untraced = len(trained) - len(measured)
    shares = sorted(trace.unaccounted_share for _, _, trace in measured)
    over = sum(share > UNACCOUNTED_SHARE_MAX for share in shares)
    return {
        "passed": bool(shares) and not over and not untraced,
        "traces": len(shares), "untraced": untraced, "over": over, "line": UNACCOUNTED_SHARE_MAX,
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
            if trace := covered((name, start, end) for start, end, name in in_order):
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


def _stage(name: str) -> str:
    """`execute_tool run_tests` → `execute_tool`: tools are users' and many."""
    return name.split(" ", 1)[0]
