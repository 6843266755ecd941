"""Where the age came from.

`origin` answers {stages, steps: [{step, executions, age, <STAGES>…}], slowest: [{sample, step, age, <STAGES>…}]}: means over a step's
executions of the versions that went by in each stage of their lives. Versions are counted by the clock of
updates, so the stages add up to the age exactly, up to facts told out of order.

Stages are cut by the times of facts, not by spans: each fact is stored once and for good, while spans are telemetry, which may be dropped, switched
off or deleted when it is old. Where both are there they have the same edges: `gyre trace` tells seconds, this tells versions.
"""

from typing import Any

import numpy as np
import sqlalchemy as sa

from services.ledger.explorer.answers.age import narrowed, shown_steps
from services.ledger.explorer.answers.attempts import Attempt, details, within_calls
from services.ledger.explorer.answers.clock import PolicyClock, policy_clock
from services.ledger.explorer.answers.columns import columns_of, first_of, real, rows_of
from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows

STEPS = 60
SAMPLES_MAX = 10_000
SLOWEST = 12

STAGES = ("queued", "starting", "generating", "tools", "evaluation", "group", "batch", "trainer")
"""Dispatched and waiting for a lease; environment starting; model calls; between them; judged and made into a sample; ended, while others of its
group had not; waiting for a batch that is complete; its update."""

_OF_STEPS = """
SELECT t.sample_id, t.step FROM step_samples t CROSS JOIN samples s {join}
WHERE s.run = t.run AND s.sample_id = t.sample_id AND t.run = :run AND t.step >= :first AND t.step <= :last {narrow}
ORDER BY t.step DESC, t.sample_id LIMIT :limit
"""
_CALLS = "SELECT sample_id, started_at_s, at_s FROM calls WHERE run = :run AND sample_id IN :ids"
_GROUPS_ENDED = """
SELECT e.group_id, max(a.ended_at_s) FROM executions e JOIN attempts a ON a.run = e.run AND a.execution_id = e.execution_id
WHERE e.run = :run AND e.group_id IN :ids GROUP BY e.group_id
"""


def origin(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    clock = policy_clock(connection, scope.run)
    bounds = shown_steps(connection, scope, STEPS)
    query, values = narrowed(scope, _OF_STEPS)
    ids = [row["sample_id"] for row in rows(connection, query, **values, **bounds, limit=SAMPLES_MAX)]
    attempts = within_calls(details(connection, scope, ids))
    table = _stages(connection, scope.run, attempts, clock)
    steps = np.array([attempt.step or 0 for attempt in attempts], np.int64)
    ages = steps - np.array([attempt.dispatched or 0 for attempt in attempts], np.int64)
    order = np.lexsort((np.arange(len(ages)), -ages))[:SLOWEST]
    return {
        "stages": list(STAGES),
        "steps": [
            {"step": int(step), "executions": int((steps == step).sum()), "age": float(ages[steps == step].mean()),
             **dict(zip(STAGES, table[steps == step].mean(axis=0).round(4).tolist(), strict=True))}
            for step in np.unique(steps)
        ],
        "slowest": [
            {"sample": attempts[index].sample_id, "step": int(steps[index]), "age": int(ages[index]),
             **dict(zip(STAGES, table[index].tolist(), strict=True))}
            for index in order
        ],
    }  # fmt: skip


def _stages(connection: sa.Connection, run: str, attempts: list[Attempt], clock: PolicyClock) -> np.ndarray:
    """int64[S, 8]: versions that went by in each of STAGES. Marks that are missing or out of order are taken as the one before."""

    def column(name: str) -> np.ndarray:
        return real([getattr(attempt, name) for attempt in attempts])

    sample, (begins, ends) = columns_of(connection, _CALLS, run, [attempt.sample_id for attempt in attempts], 2)
    begins, ends = real(begins), real(ends)
    sample, begins, ends = (one[~np.isnan(ends)] for one in (sample, begins, ends))
    begins = np.minimum(first_of(begins, ends), ends)
    first, last = np.full(len(attempts), np.inf), np.full(len(attempts), -np.inf)
    np.minimum.at(first, sample, begins)
    np.maximum.at(last, sample, ends)
    # a wait for others is over when the sample is there, whatever attempts of theirs still go on
    group = np.fmin(_groups_ended(connection, run, attempts), column("ready_at_s"))
    marks = np.column_stack([
        column("dispatched_at_s"), column("leased_at_s"), np.where(np.isinf(first), np.nan, first), last, column("ended_at_s"), group,
        column("ready_at_s"), column("closed_at_s"), column("trained_at_s"),
    ])  # fmt: skip
    times = np.maximum.accumulate(np.nan_to_num(marks, nan=-np.inf), axis=1)
    versions = clock.at(times)
    # the clock told at dispatch, and the update that trained it is not part of its age
    versions[:, 0] = np.nan_to_num(column("dispatched"))
    step = np.where(np.isnan(column("step")), versions[:, -1], column("step")).astype(np.int64)
    versions = np.maximum.accumulate(np.minimum(versions, step[:, None]), axis=1)
    queued, starting, active, judged, waited, built, batch, trainer = np.diff(versions, axis=1).T
    generating = _inside(sample, begins, ends, clock, versions[:, 2], versions[:, 3])
    return np.column_stack([queued, starting, generating, active - generating, judged + built, waited, batch, trainer])


def _groups_ended(connection: sa.Connection, run: str, attempts: list[Attempt]) -> np.ndarray:
    """float64[S], when the last member of each one's group ended."""
    ended = dict(rows_of(connection, _GROUPS_ENDED, run, list(dict.fromkeys(attempt.group_id for attempt in attempts))))
    return real([ended.get(attempt.group_id) for attempt in attempts])


def _inside(
    sample: np.ndarray, begins: np.ndarray, ends: np.ndarray, clock: PolicyClock, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """int64[S], versions that went by while a call was being sampled, calls at once counted once. sample, begins, ends: [N]; low, high: [S]."""
    order = np.lexsort((ends, begins, sample))
    sample, begins, ends = sample[order], begins[order], ends[order]
    # the latest end so far, of each sample alone: by ranks, of which a later sample's are all higher
    ranks = np.empty(len(ends), np.int64)
    ranks[np.argsort(ends, kind="stable")] = np.arange(len(ends))
    by_rank = np.sort(ends)
    latest = by_rank[np.maximum.accumulate(ranks + sample * len(ends)) - sample * len(ends)] if len(ends) else ends
    is_same = np.zeros(len(sample), bool)
    is_same[1:] = sample[1:] == sample[:-1]
    begins[1:] = np.where(is_same[1:], np.maximum(begins[1:], latest[:-1]), begins[1:])
    passed = np.clip(clock.at(latest), low[sample], high[sample]) - np.clip(clock.at(begins), low[sample], high[sample])
    return np.bincount(sample, np.maximum(passed, 0), minlength=len(low)).astype(np.int64)
