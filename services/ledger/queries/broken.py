"""The audit's SQL: for each criterion a query for the rows that break it, and one for the figure."""

from services.ledger.core.book_lines import (
    FATE_COLUMNS,
    FATE_COUNTS,
    FATE_KEY,
    STEP_COLUMNS,
    STEP_COUNTS,
    STEP_KEY,
    fates,
    used,
)
from services.ledger.queries.sql import CALL_COUNTS, CONSUMED, FATES, GROUP_VERSION

SHARE_TOLERANCE = 1e-6
"""Shares are ratios of small counts; anything below this is rounding."""
OCCUPANCY_TOLERANCE_S, OCCUPANCY_TOLERANCE_SHARE = 1.0, 0.05
"""Occupancy is measured where the instance lives, its lifetime from facts on the bus: they differ by the time a message takes."""

SIZE = """
SELECT (SELECT count(*) FROM executions WHERE run = :run) AS executions,
       (SELECT count(*) FROM steps WHERE run = :run AND updated_at_s IS NOT NULL) AS steps
"""

UNTRACEABLE = """
SELECT l.sample_id, l.state, a.attempt, a.image_digest,
       COALESCE(s.version_max, (SELECT max(c.version_max) FROM calls c WHERE c.run = l.run AND c.sample_id = l.sample_id),
                a.policy_version, v.policy_version) AS version
FROM (SELECT run, sample_id, 'trained' AS state FROM step_samples WHERE run = :run
      UNION SELECT run, sample_id, 'dropped' FROM drops WHERE run = :run) l
LEFT JOIN attempts a ON a.run = l.run AND a.sample_id = l.sample_id
LEFT JOIN samples s ON s.run = l.run AND s.sample_id = l.sample_id
LEFT JOIN (SELECT run, group_id, min(policy_version) AS policy_version FROM dispatches GROUP BY run, group_id) v
       ON v.run = a.run AND v.group_id = a.group_id
WHERE a.attempt IS NULL
   OR (COALESCE(a.image_digest, '') = '' AND (l.state = 'trained' OR a.started_at_s IS NOT NULL))
   OR (l.state = 'trained' AND (s.version_min IS NULL OR s.version_max IS NULL OR s.version_min < 0))
   OR COALESCE(s.version_max, (SELECT max(c.version_max) FROM calls c WHERE c.run = l.run AND c.sample_id = l.sample_id),
               a.policy_version, v.policy_version) IS NULL
"""
"""A dropped sample whose environment never came up has no image, and that is its trace; every other one has."""

TRACED = """
SELECT (SELECT count(*) FROM step_samples WHERE run = :run) AS trained,
       (SELECT count(*) FROM drops WHERE run = :run) AS dropped
"""

MIXED = """
SELECT b.step, count(*) AS samples FROM batch_samples b
JOIN samples s ON s.run = b.run AND s.sample_id = b.sample_id
WHERE b.run = :run AND s.origin IN ('replay', 'resample')
GROUP BY b.step HAVING count(DISTINCT s.origin) > 1
"""

ORIGINS = """
SELECT count(CASE WHEN origin = 'first' THEN 1 END) AS firsts, count(CASE WHEN origin = 'resample' THEN 1 END) AS resamples,
       count(CASE WHEN origin = 'replay' THEN 1 END) AS replays
FROM samples WHERE run = :run
"""

UNFINGERPRINTED = """
SELECT t.sample_id FROM step_samples t
WHERE t.run = :run
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run = t.run AND r.fingerprint <> '')
  AND NOT EXISTS (SELECT 1 FROM attempts a JOIN dispatches d ON d.run = a.run AND d.group_id = a.group_id
                  WHERE a.run = t.run AND a.sample_id = t.sample_id AND d.fingerprint <> '')
"""

FINGERPRINTS = """
SELECT (SELECT count(*) FROM step_samples WHERE run = :run) AS trained,
       (SELECT count(*) FROM (SELECT fingerprint FROM runs WHERE run = :run AND fingerprint <> ''
                              UNION SELECT fingerprint FROM dispatches WHERE run = :run AND fingerprint <> '') f) AS fingerprints
"""

INCOMPLETE = """
SELECT b.step, b.cause, b.turns, b.turns_target, g.turns AS turns_of_groups
FROM batches b
LEFT JOIN (SELECT run, step, sum(turns) AS turns FROM batch_groups GROUP BY run, step) g
       ON g.run = b.run AND g.step = b.step
WHERE b.run = :run
  AND (b.cause NOT IN ('turns', 'wait', 'exhausted')
       OR (b.cause = 'turns' AND b.turns < b.turns_target)
       OR (b.cause <> 'turns' AND b.turns >= b.turns_target)
       OR b.turns_target <> :turns_per_step
       OR b.turns <> COALESCE(g.turns, 0))
"""
"""Turns against the target decide, whatever the number of groups; the turns are those of the groups that were taken in."""

CLOSED = """
SELECT count(*) AS closed, count(CASE WHEN cause = 'turns' THEN 1 END) AS by_turns,
       COALESCE(min(turns), 0) AS turns_min, COALESCE(max(turns), 0) AS turns_max,
       COALESCE(min(groups), 0) AS groups_min, COALESCE(max(groups), 0) AS groups_max
FROM batches WHERE run = :run
"""

OVER_TRUNCATED = f"""
SELECT step, truncated_share FROM batches WHERE run = :run AND truncated_share > :truncated_share_max + {SHARE_TOLERANCE}
"""

TRUNCATED = "SELECT max(truncated_share) AS share FROM batches WHERE run = :run"

OVER_AGE = """
SELECT t.sample_id, t.step, s.policy_version, t.step - s.policy_version AS age_steps
FROM step_samples t LEFT JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id
WHERE t.run = :run AND (s.policy_version IS NULL OR t.step - s.policy_version > :age_steps_max)
UNION ALL
SELECT d.sample_id, d.step, NULL, d.age_steps FROM drops d
WHERE d.run = :run AND d.reason = 'age' AND d.age_steps <= :age_steps_max
"""
"""Trained over the cap, or of unknown age; or dropped by age though not over it."""

AGES = """
SELECT (SELECT max(t.step - s.policy_version) FROM step_samples t
        JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id WHERE t.run = :run) AS oldest,
       (SELECT count(*) FROM drops WHERE run = :run AND reason = 'age') AS dropped
"""

FAILED_SHARE = """
SELECT b.step, s.task_type, avg(CASE WHEN s.success THEN 0.0 ELSE 1.0 END) AS share, count(*) AS kept
FROM batch_samples b JOIN samples s ON s.run = b.run AND s.sample_id = b.sample_id
WHERE b.run = :run GROUP BY b.step, s.task_type ORDER BY b.step, s.task_type
"""
"""Of what a batch kept when it closed: what the trainer cannot train of it afterwards makes no quota better or worse."""

FAILED_SHARE_SAID = "SELECT step, failed_share_json FROM batches WHERE run = :run"

NO_GRADIENT = "SELECT step, no_gradient, micros FROM batches WHERE run = :run ORDER BY step"

NO_GRADIENT_ALARMS = "SELECT count(*) AS alarms FROM alarms WHERE run = :run AND kind = 'no_gradient'"

TURNS = f"""
SELECT a.sample_id, a.turns, a.calls, COALESCE(c.records, 0) AS records, COALESCE(c.answered, 0) AS answered
FROM attempts a
LEFT JOIN (SELECT sample_id, sum(records) AS records, sum(answered) AS answered FROM ({CALL_COUNTS}) y GROUP BY sample_id) c
       ON c.sample_id = a.sample_id
WHERE a.run = :run AND a.ended_at_s IS NOT NULL AND (a.turns <> COALESCE(c.answered, 0) OR a.calls <> COALESCE(c.records, 0))
"""
"""A call that was cut off, by the wall clock as a rule, is on record and is no turn."""

TURN_SUMS = f"""
SELECT (SELECT sum(turns) FROM attempts WHERE run = :run AND ended_at_s IS NOT NULL) AS turns,
       COALESCE(sum(CASE WHEN a.sample_id IS NOT NULL THEN c.answered END), 0) AS records,
       COALESCE(sum(CASE WHEN a.sample_id IS NOT NULL THEN c.records - c.answered END), 0) AS cut_records,
       COALESCE(sum(CASE WHEN a.sample_id IS NULL THEN c.records END), 0) AS open_records
FROM ({CALL_COUNTS}) c LEFT JOIN attempts a ON a.run = :run AND a.sample_id = c.sample_id AND a.ended_at_s IS NOT NULL
"""

STATES = f"""
SELECT f.execution_id, CASE WHEN trained > 0 AND dropped IS NOT NULL THEN 'trained and dropped'
                            WHEN trained > 0 AND purpose = 'evaluation' THEN 'evaluation trained'
                            ELSE 'lost by its step' END AS state
FROM ({FATES}) f
LEFT JOIN (SELECT s.run, s.execution_id, count(*) AS batches
           FROM batch_samples b
           JOIN samples s ON s.run = b.run AND s.sample_id = b.sample_id
           JOIN steps u ON u.run = b.run AND u.step = b.step AND u.updated_at_s IS NOT NULL
           WHERE NOT EXISTS (SELECT 1 FROM refused x WHERE x.run = b.run AND x.step = b.step AND x.sample_id = b.sample_id)
           GROUP BY s.run, s.execution_id) c ON c.run = f.run AND c.execution_id = f.execution_id
WHERE f.run = :run
  AND ((trained > 0 AND dropped IS NOT NULL) OR (trained > 0 AND purpose = 'evaluation')
       OR (c.batches > 0 AND trained = 0 AND dropped IS NULL))
UNION ALL
SELECT x.execution_id, 'never dispatched'
FROM (SELECT run, execution_id FROM samples UNION SELECT run, execution_id FROM drops) x
LEFT JOIN executions e ON e.run = x.run AND e.execution_id = x.execution_id
WHERE x.run = :run AND e.execution_id IS NULL
"""
"""In two states, or in none: consumed by a batch whose step is done, yet neither trained nor dropped, nor found untrainable by that step, whose drop
is on its way."""

TRAINED_TWICE = """
SELECT COALESCE(s.execution_id, t.sample_id) AS execution, count(*) AS trainings
FROM step_samples t LEFT JOIN samples s ON s.run = t.run AND s.sample_id = t.sample_id
WHERE t.run = :run GROUP BY COALESCE(s.execution_id, t.sample_id) HAVING count(*) > 1
"""
"""By execution: neither a sample in two steps, nor two attempts of one execution."""

TRAININGS = "SELECT count(*) AS trainings, count(DISTINCT sample_id) AS samples FROM step_samples WHERE run = :run"

OCCUPANCY = """
SELECT sample_id, occupancy_s, ended_at_s - started_at_s AS lifetime_s FROM attempts
WHERE run = :run AND ended_at_s IS NOT NULL AND started_at_s IS NOT NULL
  AND abs(occupancy_s - (ended_at_s - started_at_s))
      > :tolerance_s + :tolerance_share * abs(ended_at_s - started_at_s)
UNION ALL
SELECT sample_id, occupancy_s, 0 FROM attempts
WHERE run = :run AND ended_at_s IS NOT NULL AND started_at_s IS NULL AND occupancy_s > :tolerance_s
"""

COSTS = f"""
SELECT k.execution_id, k.turns, k.tokens, k.occupancy_s, k.told_turns, k.told_tokens, k.told_occupancy_s FROM (
  SELECT x.execution_id, sum(x.turns) AS turns, sum(x.tokens) AS tokens, sum(x.occupancy_s) AS occupancy_s,
         sum(x.told_turns) AS told_turns, sum(x.told_tokens) AS told_tokens, sum(x.told_occupancy_s) AS told_occupancy_s
  FROM (SELECT execution_id, COALESCE(turns, 0) AS turns, COALESCE(tokens, 0) AS tokens, COALESCE(occupancy_s, 0.0) AS occupancy_s,
               0 AS told_turns, 0 AS told_tokens, 0.0 AS told_occupancy_s FROM costs WHERE run = :run
        UNION ALL SELECT execution_id, 0, 0, 0.0, records, tokens, 0.0 FROM ({CALL_COUNTS}) c
        UNION ALL SELECT execution_id, 0, 0, 0.0, 0, 0, occupancy_s FROM attempts WHERE run = :run AND ended_at_s IS NOT NULL) x
  GROUP BY x.execution_id) k
WHERE k.turns <> k.told_turns OR k.tokens <> k.told_tokens OR abs(k.occupancy_s - k.told_occupancy_s) > 0.001
"""
"""Executions whose running totals, of which bills are made, are not what their facts say."""

BILL_LINES = """
SELECT k.group_id, k.turns, k.tokens, k.occupancy_s, k.told_turns, k.told_tokens, k.told_occupancy_s FROM (
  SELECT x.group_id, sum(x.turns) AS turns, sum(x.tokens) AS tokens, sum(x.occupancy_s) AS occupancy_s,
         sum(x.told_turns) AS told_turns, sum(x.told_tokens) AS told_tokens, sum(x.told_occupancy_s) AS told_occupancy_s
  FROM (SELECT group_id, turns, tokens, occupancy_s, 0.0 AS told_turns, 0 AS told_tokens, 0.0 AS told_occupancy_s
        FROM bill_lines WHERE run = :run
        UNION ALL SELECT group_id, 0.0, 0, 0.0, COALESCE(turns, 0), COALESCE(tokens, 0), COALESCE(occupancy_s, 0.0)
        FROM costs WHERE run = :run) x
  WHERE x.group_id NOT IN (SELECT group_id FROM unsettled WHERE run = :run)
  GROUP BY x.group_id) k
WHERE abs(k.turns - k.told_turns) > 0.001 OR k.tokens <> k.told_tokens OR abs(k.occupancy_s - k.told_occupancy_s) > 0.001
"""
"""Settled groups whose lines in bills are not what their running totals say."""

COST_SUMS = """
SELECT (SELECT sum(turns) FROM costs WHERE run = :run) AS turns, (SELECT sum(occupancy_s) FROM costs WHERE run = :run) AS occupancy_s,
       (SELECT sum(compute_s) FROM costs WHERE run = :run) AS compute_s, (SELECT sum(compute_s) FROM steps WHERE run = :run) AS told_compute_s
"""

BILL_SUMS = """
SELECT (SELECT count(*) FROM bill_lines WHERE run = :run) AS lines,
       (SELECT count(DISTINCT group_id) FROM bill_lines WHERE run = :run) AS settled,
       (SELECT count(*) FROM unsettled WHERE run = :run) AS unsettled
"""

LIFETIMES = """
SELECT sum(CASE WHEN ended_at_s IS NOT NULL THEN occupancy_s END) AS occupancy_s,
       sum(CASE WHEN started_at_s IS NOT NULL THEN ended_at_s - started_at_s END) AS lifetimes_s,
       count(CASE WHEN started_at_s IS NOT NULL AND ended_at_s IS NULL THEN 1 END) AS open
FROM attempts WHERE run = :run
"""

_SETTLED = """SELECT group_id FROM executions WHERE run = :run UNION SELECT group_id FROM costs WHERE run = :run
EXCEPT SELECT group_id FROM unsettled WHERE run = :run"""


def _unlike(table: str, made: str, columns: tuple[str, ...], key: tuple[str, ...], counts: tuple[str, ...]) -> str:
    """SQL of the groups whose lines in `table` are not those that their facts make now."""
    kept, signed = ", ".join(columns), ", ".join([*key, *(f"-{name} AS {name}" for name in counts)])
    differs = " OR ".join(f"abs(sum({name})) > 0.001" for name in counts)
    return f"""SELECT DISTINCT '{table} ' || k.group_id AS line FROM (
  SELECT {", ".join(key)} FROM (SELECT {kept} FROM {table} WHERE run = :run UNION ALL SELECT {signed} FROM ({made}) n) b
  GROUP BY {", ".join(key)} HAVING {differs}) k"""


BOOKS = f"""
SELECT 'book_totals ' || purpose AS line FROM (
  SELECT purpose, turns, tokens, external_calls, occupancy_s FROM book_totals WHERE run = :run
  UNION ALL SELECT purpose, -records, -tokens, 0, 0.0 FROM ({CALL_COUNTS}) c
  UNION ALL SELECT purpose, 0, 0, -external_calls, -occupancy_s FROM attempts WHERE run = :run AND ended_at_s IS NOT NULL) t
GROUP BY purpose HAVING sum(COALESCE(turns, 0)) <> 0 OR sum(COALESCE(tokens, 0)) <> 0 OR sum(COALESCE(external_calls, 0)) <> 0
  OR abs(sum(COALESCE(occupancy_s, 0.0))) > 0.001 + 0.000000001 * sum(abs(COALESCE(occupancy_s, 0.0)))
UNION ALL {_unlike("fate_lines", fates(_SETTLED), FATE_COLUMNS, FATE_KEY, FATE_COUNTS)}
UNION ALL {_unlike("step_lines", used(_SETTLED), STEP_COLUMNS, STEP_KEY, STEP_COUNTS)}
"""
"""Running totals of the books, and lines of settled groups in them, that are not what their facts say."""

BOOK_SUMS = """
SELECT (SELECT sum(turns) FROM book_totals WHERE run = :run) AS turns, (SELECT sum(occupancy_s) FROM book_totals WHERE run = :run) AS occupancy_s,
       (SELECT COALESCE(sum(executions), 0) FROM fate_lines WHERE run = :run AND dispatched = 1) AS executions,
       (SELECT COALESCE(sum(executions), 0) FROM step_lines WHERE run = :run) AS used,
       (SELECT count(*) FROM unsettled WHERE run = :run) AS unsettled
"""

STALENESS = f"""
SELECT c.step, avg(c.step - v.policy_version) AS mean, max(c.step - v.policy_version) AS max, count(*) AS executions
FROM ({CONSUMED}) c
JOIN ({GROUP_VERSION}) v ON v.run = c.run AND v.group_id = c.group_id
JOIN executions e ON e.run = c.run AND e.group_id = c.group_id
WHERE c.run = :run GROUP BY c.step ORDER BY c.step
"""
