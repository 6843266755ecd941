"""What may be deleted when it is old, so that books, bills and balances stay as they are.

calls  of attempts that ended before then and whose sample was trained or dropped, or that were an evaluation. Their counts are left, in `compacted`;
       versions are in `usage`, costs in `costs`.
spans  that ended before then. Nothing is left but, in `spans_deleted`, up to when they may be gone: traces are for looking at, and whoever asks
       whether they are whole leaves older ones out.

Everything else stays: groups, attempts, samples and their evidence (C11), batches, steps, drops, running totals, and the natural keys in `facts`, by
which a fact that comes once more, however late, changes nothing. SQLite keeps the freed pages for new rows; only VACUUM makes its file smaller.
"""

from collections.abc import Callable

import sqlalchemy as sa

from services.ledger.core.moments import bounded_ns
from services.ledger.storage.database import Database

SLICE_SAMPLES = 500
"""Of one transaction: intake waits no longer than for one of its own."""
SLICE_SPANS = 10_000

_OLD = sa.text("""
SELECT a.sample_id FROM attempts a
WHERE a.run = :run AND a.ended_at_s < :before_s AND a.sample_id > :after
  AND (a.purpose = 'evaluation'
       OR EXISTS (SELECT 1 FROM step_samples t WHERE t.run = a.run AND t.sample_id = a.sample_id)
       OR EXISTS (SELECT 1 FROM drops d WHERE d.run = a.run AND d.sample_id = a.sample_id))
  AND EXISTS (SELECT 1 FROM calls c WHERE c.run = a.run AND c.sample_id = a.sample_id)
ORDER BY a.sample_id LIMIT :most
""")
_IN = sa.bindparam("samples", expanding=True)
_KEEP = sa.text("""
INSERT INTO compacted (run, sample_id, execution_id, purpose, records, answered, tokens, compacted_at_s)
SELECT run, sample_id, max(execution_id), max(purpose), count(*), sum(CASE WHEN finish_reason <> 'cancelled' THEN 1 ELSE 0 END),
       sum(output_tokens), :now_s
FROM calls WHERE run = :run AND sample_id IN :samples GROUP BY run, sample_id
ON CONFLICT (run, sample_id) DO UPDATE SET records = compacted.records + excluded.records, answered = compacted.answered + excluded.answered,
       tokens = compacted.tokens + excluded.tokens, compacted_at_s = excluded.compacted_at_s
""").bindparams(_IN)
_DELETE = sa.text("DELETE FROM calls WHERE run = :run AND sample_id IN :samples").bindparams(_IN)
_SPANS = sa.text("""
DELETE FROM spans WHERE run = :run AND (trace_id, span_id) IN (
  SELECT trace_id, span_id FROM spans WHERE run = :run AND end_ns < :before_ns LIMIT :most)
""")

_GONE = sa.text("""
INSERT INTO spans_deleted (run, before_ns) VALUES (:run, :before_ns)
ON CONFLICT (run) DO UPDATE SET before_ns = CASE WHEN excluded.before_ns > spans_deleted.before_ns
                                                 THEN excluded.before_ns ELSE spans_deleted.before_ns END
""")


def compact(
    database: Database, run: str, before_s: float, now_s: float, go_on: Callable[[], bool] = lambda: True
) -> dict[str, int]:
    """Delete what is older than `before_s` (Unix seconds): {calls, samples, spans}, how many rows went and of how many samples. `go_on` is asked
    before each slice, a transaction of its own; where it says no the rest is left for another time. Raises InvalidInput for NaN."""
    told, after, before_ns = {"calls": 0, "samples": 0, "spans": 0}, "", bounded_ns(before_s)
    while go_on():
        with database.read() as connection:
            bound = {"run": run, "before_s": before_s, "after": after, "most": SLICE_SAMPLES}
            samples = list(connection.scalars(_OLD, bound))
        if not samples:
            break
        with database.writing.begin() as connection:
            connection.execute(_KEEP, {"run": run, "samples": samples, "now_s": now_s})
            deleted = connection.execute(_DELETE, {"run": run, "samples": samples}).rowcount
        told["calls"] += deleted
        told["samples"] += len(samples)
        after = samples[-1]
    while go_on():
        with database.writing.begin() as connection:
            bound = {"run": run, "before_ns": before_ns, "most": SLICE_SPANS}
            deleted = connection.execute(_SPANS, bound).rowcount
            if deleted:
                connection.execute(_GONE, {"run": run, "before_ns": before_ns})
        told["spans"] += deleted
        if not deleted:
            break
    return told
