"""SQL of a group's lines in the books, made of its facts' own tables (C6). Runs on SQLite and PostgreSQL alike.

SQLite without statistics prefers a covering index that follows `run` only, which is the whole run, to a narrow one. So joins that must begin with the
group are CROSS JOINs, whose order SQLite keeps, and `batch_groups` is asked for a column that no index covers.
"""

FATE_KEY = ("group_id", "purpose", "dispatched", "trained", "dropped", "version")
FATE_COUNTS = ("executions", "ended", "timed_out", "scored", "succeeded")
FATE_COLUMNS = (*FATE_KEY, *FATE_COUNTS)
"""Of a line, in the order in which `fates` selects them."""

STEP_KEY = ("group_id", "step")
STEP_COUNTS = (
    "executions", "age_sum", "age_max", "ended", "timed_out", "turns", "scored", "succeeded", "samples", "rewarded", "reward_sum",
)  # fmt: skip
STEP_COLUMNS = (*STEP_KEY, *STEP_COUNTS)
"""Of a line, in the order in which `used` selects them."""

UNENDED = -1
"""Version of an execution without an ending."""

_LAST = "(SELECT max(y.attempt) FROM attempts y WHERE y.run = m.run AND y.execution_id = m.execution_id AND y.ended_at_s IS NOT NULL)"
"""The attempt whose ending counts for the execution `m`."""

_ENDINGS = "count(x.execution_id) AS ended, count(CASE WHEN x.ending = 'timed_out' THEN 1 END) AS timed_out"
_OUTCOMES = "count(x.outcome) AS scored, count(CASE WHEN x.outcome >= 1 THEN 1 END) AS succeeded"


def fates(groups: str) -> str:
    """A SELECT of FATE_COLUMNS. `groups`: SQL that follows `group_id IN (…)`; the statement binds `:run`, and what `groups` binds."""
    return f"""
SELECT m.group_id, COALESCE(m.purpose, x.purpose, '') AS purpose, m.dispatched, m.trained, m.dropped,
       COALESCE(x.policy_version, {UNENDED}) AS version, count(*) AS executions, {_ENDINGS}, {_OUTCOMES}
FROM (SELECT m.run, m.execution_id, m.group_id, e.purpose, CASE WHEN e.execution_id IS NULL THEN 0 ELSE 1 END AS dispatched, {_LAST} AS last,
             CASE WHEN EXISTS (SELECT 1 FROM samples s CROSS JOIN step_samples t WHERE s.run = m.run AND s.execution_id = m.execution_id
                               AND t.run = s.run AND t.sample_id = s.sample_id) THEN 1 ELSE 0 END AS trained,
             COALESCE((SELECT max(d.reason) FROM drops d
                       WHERE d.run = m.run AND d.execution_id = m.execution_id AND d.reason <> 'duplicate'), '') AS dropped
      FROM (SELECT run, execution_id, group_id FROM executions WHERE run = :run AND group_id IN ({groups})
            UNION SELECT run, execution_id, group_id FROM costs WHERE run = :run AND group_id IN ({groups})) m
      LEFT JOIN executions e ON e.run = m.run AND e.execution_id = m.execution_id) m
LEFT JOIN attempts x ON x.run = m.run AND x.execution_id = m.execution_id AND x.attempt = m.last
GROUP BY m.group_id, COALESCE(m.purpose, x.purpose, ''), m.dispatched, m.trained, m.dropped, COALESCE(x.policy_version, {UNENDED})
"""


def used(groups: str) -> str:
    """A SELECT of STEP_COLUMNS, of groups that a step used up; `groups` as above."""
    return f"""
SELECT m.group_id, m.step, count(*) AS executions, sum(m.step - m.policy_version) AS age_sum, max(m.step - m.policy_version) AS age_max,
       {_ENDINGS}, COALESCE(sum(x.turns), 0) AS turns, {_OUTCOMES},
       count(s.sample_id) AS samples, count(s.reward) AS rewarded, COALESCE(sum(s.reward), 0.0) AS reward_sum
FROM (SELECT m.*, {_LAST} AS last FROM (
        SELECT e.run, e.execution_id, e.group_id, c.step,
               (SELECT min(d.policy_version) FROM dispatches d WHERE d.run = e.run AND d.group_id = e.group_id) AS policy_version
        FROM (SELECT group_id, step FROM batch_groups WHERE run = :run AND group_id IN ({groups}) AND COALESCE(samples, 0) >= 0
              UNION SELECT e.group_id, d.step FROM executions e CROSS JOIN drops d
              WHERE e.run = :run AND e.group_id IN ({groups}) AND d.run = e.run AND d.execution_id = e.execution_id
                AND d.step >= 0 AND d.reason IN ('no_gradient', 'quota', 'truncated', 'no_targets')) c
        CROSS JOIN executions e WHERE e.run = :run AND e.group_id = c.group_id) m) m
LEFT JOIN attempts x ON x.run = m.run AND x.execution_id = m.execution_id AND x.attempt = m.last
LEFT JOIN samples s ON s.run = x.run AND s.sample_id = x.sample_id
GROUP BY m.group_id, m.step
"""
