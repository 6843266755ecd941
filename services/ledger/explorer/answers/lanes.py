"""Swim-lanes: time × policy version, an execution a bar from first token to gradient, split where its serving version changed.

`lanes` answers, arrays one item a bar in order of rows:

    now_s, version      when the books last heard anything, the newest policy version
    matched, shown, cut whether more than `shown` matched
    bands    [{version, first_row, rows}]     executions dispatched at one version, newest below; rows are packed so that bars do not overlap
    bars     {sample, row, from_s, active_s, to_s, dispatched, age, state, segments}
             from_s: lease; active_s: its last token or ending; to_s: gradient, drop or now; age: steps, oldest token at the gradient (or now)
             segments: how many of `segments` are its
    segments {from_s, to_s, version, age}     stretches sampled by one version
    published [{version, at_s}], updates [[version, at_s]], roles [{cell, role, from_s, to_s}]
"""

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from services.ledger.explorer.answers.attempts import Attempt, details, newest, within_calls
from services.ledger.explorer.answers.clock import PolicyClock, policy_clock, roles
from services.ledger.explorer.answers.columns import first_of, real
from services.ledger.explorer.answers.segments import Segments, segments_of
from services.ledger.explorer.scope import Scope


def lanes(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    clock = policy_clock(connection, scope.run)
    ids = newest(connection, scope)
    attempts = within_calls(details(connection, scope, ids))
    segments = segments_of(connection, scope.run, [attempt.sample_id for attempt in attempts])
    bars, ages = _bars(attempts, segments, clock)
    bands, row = _pack([attempt.sample_id for attempt in attempts], bars["dispatched"], bars["from_s"], bars["to_s"])
    order = np.lexsort((bars["from_s"], row))
    counts = segments.counts[order]
    parts = np.repeat(segments.first[order] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return {
        "now_s": clock.now_s, "version": clock.newest,
        "matched": len(ids), "shown": len(attempts), "cut": len(ids) >= scope.limit or len(attempts) < len(ids),
        "bands": bands,
        "bars": {
            **{name: [getattr(attempts[index], source) for index in order.tolist()] for name, source in _OWN.items()},
            **{name: bars[name][order].tolist() for name in ("dispatched", "age")},
            **{name: _ms(bars[name][order]) for name in ("from_s", "active_s", "to_s")},
            "row": row[order].tolist(), "segments": counts.tolist(),
        },
        "segments": {
            "from_s": _ms(segments.from_s[parts]), "to_s": _ms(segments.to_s[parts]), "version": segments.version[parts].tolist(),
            "age": ages[parts].tolist(),
        },
        "published": clock.published,
        "updates": list(map(list, zip(clock.versions.tolist(), clock.updated_at_s.tolist(), strict=True))),
        "roles": roles(connection, scope.run, clock.now_s),
    }  # fmt: skip


_OWN = {"sample": "sample_id", "state": "state", "step": "step"}
"""Of a bar, and of the attempt."""


def _bars(
    attempts: Sequence[Attempt], segments: Segments, clock: PolicyClock
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """({from_s, active_s, to_s, dispatched, age: [S]}, int64[N] age of each segment)."""

    def column(name: str) -> np.ndarray:
        return real([getattr(attempt, name) for attempt in attempts])

    is_sampled = segments.counts > 0
    first, last = segments.first[:-1][is_sampled], segments.first[1:][is_sampled] - 1
    begin = first_of(column("started_at_s"), column("leased_at_s"), np.full(len(attempts), clock.now_s))
    begin[is_sampled] = segments.from_s[first]
    active = first_of(column("ended_at_s"), begin)
    active[is_sampled] = np.maximum(active[is_sampled], segments.to_s[last])
    is_open = np.array([attempt.state in ("running", "ready") for attempt in attempts], bool)
    end = first_of(column("trained_at_s"), column("dropped_at_s"), np.where(is_open, clock.now_s, active))
    step, is_trained = column("step"), ~np.isnan(column("step"))
    # what a gradient of now would find old: the step that trained it, else the next step
    step = np.where(is_trained, step, clock.at(end)).astype(np.int64)
    dispatched = np.nan_to_num(column("dispatched")).astype(np.int64)
    ages = np.maximum(np.repeat(step, segments.counts) - segments.version, 0)
    age = np.maximum(step - dispatched, 0)
    if len(first):
        age[is_sampled] = np.maximum.reduceat(ages, first)
    found = {
        "from_s": begin, "active_s": np.where(is_trained, np.minimum(active, np.maximum(end, begin)), active), "to_s": np.maximum(end, active),
        "dispatched": dispatched, "age": age,
    }  # fmt: skip
    return found, ages


def _pack(
    samples: Sequence[str], dispatched: np.ndarray, from_s: np.ndarray, to_s: np.ndarray
) -> tuple[list[dict[str, int]], np.ndarray]:
    """(bands, int64[S] row of each bar): bands by version at dispatch, in each the first row that is free when the bar begins."""
    begins, ends, versions = from_s.tolist(), to_s.tolist(), dispatched.tolist()
    rows = np.zeros(len(samples), np.int64)
    bands: list[dict[str, int]] = []
    free: list[tuple[float, int]] = []
    for bar in sorted(range(len(samples)), key=lambda bar: (versions[bar], begins[bar], samples[bar])):
        if not bands or bands[-1]["version"] != versions[bar]:
            top = bands[-1]["first_row"] + bands[-1]["rows"] if bands else 0
            bands.append({"version": versions[bar], "first_row": top, "rows": 0})
            free = []
        band = bands[-1]
        if free and free[0][0] <= begins[bar]:
            _, row = heapq.heappop(free)
        else:
            row = band["rows"]
            band["rows"] += 1
        rows[bar] = band["first_row"] + row
        heapq.heappush(free, (ends[bar], row))
    return bands, rows


def _ms(at_s: np.ndarray) -> list[float]:
    return at_s.round(3).tolist()
