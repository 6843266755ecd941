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
from collections import defaultdict
from typing import Any

import sqlalchemy as sa

from services.ledger.explorer.answers.attempts import Attempt, details, in_parts, newest
from services.ledger.explorer.answers.clock import PolicyClock, policy_clock, roles
from services.ledger.explorer.scope import Scope

Segment = tuple[float, float, int]
"""(from_s, to_s, version)"""

_CALLS = """
SELECT sample_id, started_at_s, first_token_at_s, at_s, version_min, version_mean, version_max FROM calls
WHERE run = :run AND sample_id IN :ids
"""


def lanes(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives."""
    clock = policy_clock(connection, scope.run)
    ids = newest(connection, scope)
    attempts = details(connection, scope, ids)
    segments = segments_of(connection, scope.run, ids)
    bars = [_bar(attempt, segments.get(attempt.sample_id, []), clock) for attempt in attempts]
    bands = _pack(bars)
    bars.sort(key=lambda bar: (bar["row"], bar["from_s"]))
    flat = [(*segment, age) for bar in bars for segment, age in zip(bar["segments"], bar["ages"], strict=True)]
    return {
        "now_s": clock.now_s, "version": clock.newest,
        "matched": len(ids), "shown": len(bars), "cut": len(ids) >= scope.limit,
        "bands": bands,
        "bars": {
            **{name: [bar[name] for bar in bars] for name in ("sample", "row", "dispatched", "age", "state", "step")},
            **{name: [_ms(bar[name]) for bar in bars] for name in ("from_s", "active_s", "to_s")},
            "segments": [len(bar["segments"]) for bar in bars],
        },
        "segments": {
            "from_s": [_ms(one[0]) for one in flat], "to_s": [_ms(one[1]) for one in flat], "version": [one[2] for one in flat],
            "age": [one[3] for one in flat],
        },
        "published": clock.published,
        "updates": list(map(list, zip(clock.versions.tolist(), clock.updated_at_s.tolist(), strict=True))),
        "roles": roles(connection, scope.run, clock.now_s),
    }  # fmt: skip


def segments_of(connection: sa.Connection, run: str, ids: list[str]) -> dict[str, list[Segment]]:
    """Sample → stretches of one version each, in order of time. Of a call that two versions sampled it is known how much each did, not
    when it changed: the mean version's share of the way is taken."""
    query = sa.text(_CALLS).bindparams(sa.bindparam("ids", expanding=True))
    calls: dict[str, list[Segment]] = defaultdict(list)
    for some in in_parts(ids):
        for sample, started, first, at, low, mean, high in connection.execute(query, {"run": run, "ids": some}).all():
            if low is None or at is None:
                continue
            begin = min(first or started or at, at)
            if low == high:
                calls[sample].append((begin, at, low))
            else:
                middle = at - (at - begin) * (mean - low) / (high - low)
                calls[sample] += [(begin, middle, low), (middle, at, high)]
    return {sample: _merged(sorted(stretches)) for sample, stretches in calls.items()}


def _merged(stretches: list[Segment]) -> list[Segment]:
    """Neighbours of one version are one segment; each goes on until the next begins, so that time in tools is seen too."""
    found: list[Segment] = []
    for begin, end, version in stretches:
        if found and found[-1][2] == version:
            found[-1] = (found[-1][0], max(found[-1][1], end), version)
        else:
            if found:
                found[-1] = (found[-1][0], max(found[-1][0], begin), found[-1][2])
            found.append((begin, end, version))
    return found


def _bar(attempt: Attempt, segments: list[Segment], clock: PolicyClock) -> dict[str, Any]:
    begin = segments[0][0] if segments else attempt.started_at_s or attempt.leased_at_s or clock.now_s
    active = max([end for _, end, _ in segments[-1:]] + [attempt.ended_at_s or begin])
    end = (
        attempt.trained_at_s
        or attempt.dropped_at_s
        or (clock.now_s if attempt.state in ("running", "ready") else active)
    )
    # what a gradient of now would find old: the step that trained it, else the next step
    step = attempt.step if attempt.step is not None else clock.at_one(end)
    dispatched = attempt.dispatched or 0
    ages = [max(0, step - version) for _, _, version in segments]
    return {
        "sample": attempt.sample_id, "from_s": begin, "active_s": min(active, max(end, begin)) if attempt.step is not None else active,
        "to_s": max(end, active), "dispatched": dispatched, "age": max(ages, default=max(0, step - dispatched)), "state": attempt.state,
        "step": attempt.step, "segments": segments, "ages": ages,
    }  # fmt: skip


def _pack(bars: list[dict[str, Any]]) -> list[dict[str, int]]:
    """Gives each bar its `row`: bands by version at dispatch, in each the first row that is free when the bar begins."""
    by_version: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for bar in bars:
        by_version[bar["dispatched"]].append(bar)
    bands, first_row = [], 0
    for version in sorted(by_version):
        free: list[tuple[float, int]] = []
        rows = 0
        for bar in sorted(by_version[version], key=lambda bar: (bar["from_s"], bar["sample"])):
            if free and free[0][0] <= bar["from_s"]:
                _, row = heapq.heappop(free)
            else:
                row, rows = rows, rows + 1
            bar["row"] = first_row + row
            heapq.heappush(free, (bar["to_s"], row))
        bands.append({"version": version, "first_row": first_row, "rows": rows})
        first_row += rows
    return bands


def _ms(at_s: float) -> float:
    return round(at_s, 3)
