"""Pressure: waterlevel, capacity by role, backlogs, and how idle each cell is.

Over the newest executions of the scope (at most `scope.limit`, and CALLS_MAX calls of theirs), from their first lease. `pressure` answers

    from_s, to_s
    waterlevel  [{at_s, waterlevel, capacity, outstanding_groups}]    at most POINTS; operators only, as cells
    capacity    [{at_s, rollout, training}]                           executions by the role of cells, by configuration
    backlogs    {at_s: […], queued, running, evaluating, ready, closed}   executions in each stage at POINTS times
    cells       [{cell, role, version, behind, calls, tokens, rollout_s, busy_s, idle_share, training_s, serving, alarms}]
        version  that its newest call was sampled by; behind: steps behind the newest that had been published then
        busy_s   of rollout_s in which it had a call in hand; idle_share = 1 − busy_s / rollout_s
        serving  [{from_s, to_s, version, behind, calls, sample}]     stretches by version, and a sample of each
    published   [{version, at_s}], roles as lanes
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import sqlalchemy as sa

from services.ledger.explorer.answers.attempts import Attempt, details, newest, within_calls
from services.ledger.explorer.answers.clock import policy_clock, roles
from services.ledger.explorer.answers.columns import columns_of, first_of, real
from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows

POINTS = 400

_SPAN = "SELECT count(*) AS points FROM waterlevel WHERE run = :run AND at_s >= :from_s"
_WATER = """
SELECT at_s, waterlevel, capacity, outstanding_groups FROM waterlevel
WHERE run = :run AND at_s >= :from_s AND (dispatched + finished) % :nth = 0 ORDER BY at_s
"""
_CALLS = """
SELECT sample_id, cells_json, started_at_s, wait_s, at_s, version_max, output_tokens FROM calls WHERE run = :run AND sample_id IN :ids
"""
_ALARMS = "SELECT kind, message, at_s FROM alarms WHERE run = :run ORDER BY at_s DESC LIMIT 200"

UNKNOWN = -1
"""Version of a call whose record does not say."""


@dataclass(frozen=True)
class Calls:
    """Calls that one cell had a part in, in order of time: arrays [N]."""

    from_s: np.ndarray
    to_s: np.ndarray
    version: np.ndarray
    """int64, UNKNOWN or the newest version that sampled"""
    tokens: np.ndarray
    """int64, the cell's even share of the call's"""
    sample: np.ndarray
    """int64, place in the page's samples"""


def pressure(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    clock = policy_clock(connection, scope.run)
    scope = replace(scope, purpose="all")  # evaluations keep cells busy too
    attempts = within_calls(details(connection, scope, newest(connection, scope)))
    ids = [row.sample_id for row in attempts]
    starts = [row.dispatched_at_s or row.leased_at_s for row in attempts if row.dispatched_at_s or row.leased_at_s]
    from_s, to_s = min(starts, default=clock.now_s), clock.now_s
    trained = [row for row in attempts if row.purpose == "train"]
    answer: dict[str, Any] = {
        "from_s": from_s, "to_s": to_s, "backlogs": _backlogs(trained, from_s, to_s), "published": clock.published,
        "waterlevel": [], "capacity": [], "cells": [], "roles": [], "version": clock.newest,
    }  # fmt: skip
    if not scope.is_operator:
        return answer
    spans = roles(connection, scope.run, to_s)
    points = rows(connection, _SPAN, run=scope.run, from_s=from_s)[0]["points"]
    return answer | {
        "waterlevel": rows(connection, _WATER, run=scope.run, from_s=from_s, nth=max(1, points // POINTS)),
        "capacity": _capacity(spans, from_s, to_s, scope.config.scheduler.cell_capacity),
        "roles": [span for span in spans if span["to_s"] >= from_s],
        "cells": _cells(
            _calls(connection, scope.run, ids),
            ids,
            spans,
            clock.published,
            from_s,
            rows(connection, _ALARMS, run=scope.run),
        ),
    }


def _backlogs(attempts: list[Attempt], from_s: float, to_s: float) -> dict[str, list[float]]:
    """Stage → how many executions stood in it at each of POINTS times: begun by then, less gone on by then."""
    times = np.linspace(from_s, max(to_s, from_s), POINTS)
    marks = np.array(
        [
            [
                row.dispatched_at_s,
                row.leased_at_s,
                row.ended_at_s,
                row.ready_at_s,
                row.closed_at_s,
                row.trained_at_s,
                row.dropped_at_s,
            ]
            for row in attempts
        ],
        float,
    ).reshape(len(attempts), 7)
    # what has left, left every stage; a mark that is missing while a later one is there happened with that one
    gone = np.fmin(marks[:, 5], marks[:, 6])
    stages = np.column_stack([marks[:, :5], gone])
    stages = np.where(np.isnan(stages), np.inf, stages)
    stages = np.minimum.accumulate(stages[:, ::-1], axis=1)[:, ::-1]
    begun = [np.searchsorted(np.sort(column), times, side="right") for column in stages.T]
    names = ("queued", "running", "evaluating", "ready", "closed")
    found = {name: (begun[index] - begun[index + 1]).tolist() for index, name in enumerate(names)}
    return {"at_s": times.round(3).tolist(), **found}


def _capacity(spans: list[dict[str, Any]], from_s: float, to_s: float, each: int) -> list[dict[str, Any]]:
    changes: dict[float, dict[str, int]] = defaultdict(lambda: {"rollout": 0, "training": 0})
    for span in spans:
        if span["role"] in ("rollout", "training") and span["to_s"] >= from_s:
            changes[max(span["from_s"], from_s)][span["role"]] += each
            changes[span["to_s"]][span["role"]] -= each
    level, found = {"rollout": 0, "training": 0}, []
    for at_s in sorted(changes):
        level = {role: level[role] + changes[at_s][role] for role in level}
        if at_s < to_s:
            found.append({"at_s": at_s, **level})
    return found + ([{"at_s": to_s, **{role: found[-1][role] for role in level}}] if found else [])


def _calls(connection: sa.Connection, run: str, ids: Sequence[str]) -> dict[str, Calls]:
    """By cell."""
    sample, (named, started, wait, at, version, tokens) = columns_of(connection, _CALLS, run, ids, 6)
    kinds = {text: kind for kind, text in enumerate(dict.fromkeys(named))}
    kind = np.fromiter((kinds[text] for text in named), np.int64, len(named))
    at, version = real(at), np.nan_to_num(real(version), nan=UNKNOWN).astype(np.int64)
    begin = np.minimum(first_of(real(started), at) + np.nan_to_num(real(wait)), at)
    tokens = np.nan_to_num(real(tokens)).astype(np.int64)
    parts: dict[str, list[tuple[np.ndarray, int]]] = defaultdict(list)
    for text, number in kinds.items():
        cells = msgspec.json.decode(text or "[]")
        own = np.flatnonzero((kind == number) & ~np.isnan(at))
        for cell in cells:
            parts[cell].append((own, len(cells)))
    found = {}
    for cell, pieces in parts.items():
        own = np.concatenate([places for places, _ in pieces])
        shared = np.concatenate([np.full(len(places), count) for places, count in pieces])
        order = np.lexsort((version[own], at[own], begin[own]))
        own, shared = own[order], shared[order]
        found[cell] = Calls(begin[own], at[own], version[own], tokens[own] // shared, sample[own])
    return found


_NONE = Calls(*(np.empty(0) for _ in range(2)), *(np.empty(0, np.int64) for _ in range(3)))


def _cells(
    calls: dict[str, Calls], ids: Sequence[str], spans: list[dict[str, Any]], published: list[dict[str, Any]], from_s: float,
    alarms: list[dict[str, Any]],
) -> list[dict[str, Any]]:  # fmt: skip
    names = list(dict.fromkeys(span["cell"] for span in spans))
    at_s = np.array([row["at_s"] for row in published], float)
    versions = np.array([0, *(row["version"] for row in published)], np.int64)
    found = []
    for cell in names + sorted(set(calls) - set(names)):
        own = [span for span in spans if span["cell"] == cell and span["to_s"] > from_s]
        lasting = {
            role: sum(span["to_s"] - max(span["from_s"], from_s) for span in own if span["role"] == role)
            for role in ("rollout", "training")
        }
        of_cell = calls.get(cell, _NONE)
        serving = _serving(of_cell, ids, at_s, versions)
        busy_s = min(_covered(of_cell), lasting["rollout"])
        found.append({
            "cell": cell, "role": own[-1]["role"] if own else "", "version": serving[-1]["version"] if serving else None,
            "behind": serving[-1]["behind"] if serving else None, "calls": len(of_cell.from_s), "tokens": int(of_cell.tokens.sum()),
            "rollout_s": lasting["rollout"], "training_s": lasting["training"], "busy_s": busy_s,
            "idle_share": 1 - busy_s / lasting["rollout"] if lasting["rollout"] > 0 else None, "serving": serving,
            "alarms": [alarm for alarm in alarms if cell in alarm["message"]][:10],
        })  # fmt: skip
    return found


def _serving(
    calls: Calls, ids: Sequence[str], published_at_s: np.ndarray, versions: np.ndarray
) -> list[dict[str, Any]]:
    """Stretches of one version; `behind` is the most in a stretch, from what had been published when each call began."""
    known = calls.version != UNKNOWN
    begin, end, version, sample = calls.from_s[known], calls.to_s[known], calls.version[known], calls.sample[known]
    if not len(version):
        return []
    starts = np.flatnonzero(np.concatenate([[True], version[1:] != version[:-1]]))
    behind = versions[np.searchsorted(published_at_s, begin, side="right")] - version
    behind = np.maximum(np.maximum.reduceat(behind, starts), 0)
    counts = np.diff(np.append(starts, len(version)))
    columns = (begin[starts], np.maximum.reduceat(end, starts), version[starts], behind, counts)
    return [
        {"from_s": from_s, "to_s": to_s, "version": number, "behind": late, "calls": count, "sample": ids[place]}
        for from_s, to_s, number, late, count, place in zip(
            *(one.tolist() for one in (*columns, sample[starts])), strict=True
        )
    ]


def _covered(calls: Calls) -> float:
    """Seconds in which at least one call was in hand."""
    if not len(calls.from_s):
        return 0.0
    until = np.concatenate([[-np.inf], np.maximum.accumulate(calls.to_s)[:-1]])
    return float(np.maximum(calls.to_s - np.maximum(calls.from_s, until), 0).sum())
