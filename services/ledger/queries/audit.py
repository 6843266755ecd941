"""The acceptance criteria (C14) and the balances, each with the query that shows it.

Each query returns the rows that break its criterion, so an empty answer is a pass; figures say over how much that was asked. Criteria are worded so
that they hold at every moment of a run, not only at its end.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from services.ledger.queries import broken
from services.ledger.queries.sql import number, one, pasteable, rows
from services.ledger.queries.standing import by_step, executions, staleness

EXAMPLES_MAX = 3
"""Broken rows that a figure names."""


@dataclass(frozen=True)
class Criterion:
    """One line of the audit."""

    name: str
    """Stable identifier."""
    passed: bool
    figure: str
    """What was found, for people."""
    query: str
    """SQL that can be run by hand; with a criterion that did not pass, its rows are what is wrong."""


def audit(connection: sa.Connection, run: str, config: Config) -> list[Criterion]:
    """Every criterion in a fixed order: the four of C14 first, then the balances, then information."""
    return [check(connection, run, config) for check in _CHECKS]


def _not_empty(connection: sa.Connection, run: str, _config: Config) -> Criterion:
    """An audit of nothing is no pass."""
    found = one(connection, broken.SIZE, run=run)
    figure = f"{found['executions']} executions dispatched, {found['steps']} steps done"
    return Criterion("not_empty", found["executions"] > 0, figure, pasteable(broken.SIZE, run=run))


def _by_rows(
    name: str, query: str, figure: Callable[[dict[str, Any]], str], count: str, values: Callable[[Config], dict[str, Any]] = lambda _: {},
) -> Callable[[sa.Connection, str, Config], Criterion]:  # fmt: skip
    """A criterion that passes when `query` returns nothing; `figure` words the single row of `count`."""

    def check(connection: sa.Connection, run: str, config: Config) -> Criterion:
        bound = {"run": run, **values(config)}
        found = rows(connection, query, **bound)
        wanted = {key: value for key, value in bound.items() if f":{key}" in count}
        text = figure({**bound, **one(connection, count, **wanted)}) + _examples(found)
        return Criterion(name, not found, text, pasteable(query, **bound))

    return check


def _examples(found: list[dict[str, Any]]) -> str:
    if not found:
        return ""
    shown = "; ".join(" ".join(f"{key}={value}" for key, value in row.items()) for row in found[:EXAMPLES_MAX])
    return f"; {len(found)} broken, e.g. {shown}"


def _failure_quota(connection: sa.Connection, run: str, config: Config) -> Criterion:
    """Recomputed from the samples that each batch kept; the assembler's own figure must not be over the line either."""
    settings = config.trajproc
    wrong, worst, types = [], 0.0, set()
    found = rows(connection, broken.FAILED_SHARE, run=run)
    said = [
        {"step": row["step"], "task_type": task_type, "share": share}
        for row in rows(connection, broken.FAILED_SHARE_SAID, run=run)
        for task_type, share in json.loads(row["failed_share_json"] or "{}").items()
    ]
    for row in [*found, *said]:
        share = float(row["share"])
        quota = settings.failed_share_by_type.get(row["task_type"], settings.failed_share_max)
        worst, types = max(worst, share), types | {row["task_type"]}
        if share > quota + broken.SHARE_TOLERANCE:
            wrong.append({**row, "share": round(share, 4), "quota": quota})
    figure = f"{len(types)} task types, largest failed share kept {worst:.3f}, quota {settings.failed_share_max:g}"
    if settings.failed_share_by_type:
        figure += f" ({', '.join(f'{name} {share:g}' for name, share in settings.failed_share_by_type.items())})"
    return Criterion("failure_quota", not wrong, figure + _examples(wrong), pasteable(broken.FAILED_SHARE, run=run))


def _no_gradient(connection: sa.Connection, run: str, config: Config) -> Criterion:
    """As many batches in a row without gradient as the setting says must have raised an alarm."""
    limit = config.trajproc.no_gradient_alarm
    batches = rows(connection, broken.NO_GRADIENT, run=run)
    wrong = [row for row in batches if bool(row["no_gradient"]) != (row["micros"] == 0)]
    longest = length = 0
    for row in batches:
        length = length + 1 if row["no_gradient"] else 0
        longest = max(longest, length)
    alarms = one(connection, broken.NO_GRADIENT_ALARMS, run=run)["alarms"]
    passed = not wrong and (longest < limit or alarms > 0)
    figure = (
        f"{sum(bool(row['no_gradient']) for row in batches)} of {len(batches)} batches without gradient, at most {longest} in a row, "
        f"alarm from {limit}, {alarms} alarms"
    )
    return Criterion("no_gradient_alarm", passed, figure + _examples(wrong), pasteable(broken.NO_GRADIENT, run=run))


def _balance_samples(connection: sa.Connection, run: str, _config: Config) -> Criterion:
    found = rows(connection, broken.STATES, run=run)
    counts = executions(connection, run)
    adds_up = counts["dispatched"] == counts["trained"] + counts["dropped"] + counts["in_flight"]
    figure = (
        f"dispatched {counts['dispatched']} = trained {counts['trained']} + dropped {counts['dropped']} "
        f"+ in flight {counts['in_flight']}"
    )
    return Criterion(
        "balance_samples", adds_up and not found, figure + _examples(found), pasteable(broken.STATES, run=run)
    )


def _staleness_law(connection: sa.Connection, run: str, config: Config) -> Criterion:
    """Information: the law speaks of the steady state, so a run is not failed by it."""
    found = staleness(by_step(connection, run), config)
    figure = (
        f"information: mean {found['mean']:.3f} steps over {found['executions']} executions, largest {found['max']}, "
        f"law {found['law']:g}"
    )
    return Criterion("staleness_law", True, figure, pasteable(broken.STALENESS, run=run))


_CHECKS: tuple[Callable[[sa.Connection, str, Config], Criterion], ...] = (
    _by_rows(
        "traceable", broken.UNTRACEABLE,
        lambda n: f"{n['trained']} trained and {n['dropped']} dropped samples lead to image, weight version and attempt",
        broken.TRACED,
    ),
    _by_rows(
        "fingerprinted", broken.UNFINGERPRINTED,
        lambda n: f"{n['trained']} trained samples, {n['fingerprints']} configuration fingerprints of the run",
        broken.FINGERPRINTS,
    ),
    _by_rows(
        "turns_complete", broken.INCOMPLETE,
        lambda n: f"{n['closed']} batches closed: {n['by_turns']} by turns, {n['closed'] - n['by_turns']} by the wait policy; "
                  f"turns {n['turns_min']} to {n['turns_max']}, groups {n['groups_min']} to {n['groups_max']}",
        broken.CLOSED,
        lambda config: {"turns_per_step": config.trajproc.turns_per_step},
    ),
    _by_rows(
        "truncated_share", broken.OVER_TRUNCATED,
        lambda n: f"largest truncated share {float(number(n['share'])):.3f}, line {n['truncated_share_max']:g}",
        broken.TRUNCATED,
        lambda config: {"truncated_share_max": config.trajproc.truncated_share_max},
    ),
    _by_rows(
        "age_cap", broken.OVER_AGE,
        lambda n: f"oldest trained sample {number(n['oldest'])} steps, cap {n['age_steps_max']}, {n['dropped']} dropped by age",
        broken.AGES,
        lambda config: {"age_steps_max": config.trajproc.age_steps_max},
    ),
    _failure_quota,
    _no_gradient,
    _by_rows(
        "origins_apart", broken.MIXED,
        lambda n: f"{n['firsts']} first attempts, {n['resamples']} resamples and {n['replays']} replays, the last two in no batch together",
        broken.ORIGINS,
    ),
    _by_rows(
        "balance_turns", broken.TURNS,
        lambda n: f"{number(n['turns'])} turns in the endings = {n['records']} answered call records of ended attempts "
                  f"(+ {n['cut_records']} cut off, {n['open_records']} of attempts that have no ending)",
        broken.TURN_SUMS,
    ),
    _balance_samples,
    _by_rows(
        "trained_once", broken.TRAINED_TWICE,
        lambda n: f"{n['trainings']} trainings of {n['samples']} samples",
        broken.TRAININGS,
    ),
    _by_rows(
        "balance_occupancy", broken.OCCUPANCY,
        lambda n: f"{float(number(n['occupancy_s'])):.2f} s in the books, {float(number(n['lifetimes_s'])):.2f} s of instance "
                  f"lifetimes; {n['open']} started attempts without an ending",
        broken.LIFETIMES,
        lambda _: {"tolerance_s": broken.OCCUPANCY_TOLERANCE_S, "tolerance_share": broken.OCCUPANCY_TOLERANCE_SHARE},
    ),
    _by_rows(
        "balance_costs", broken.COSTS,
        lambda n: f"bills add up to {number(n['turns'])} turns and {float(number(n['occupancy_s'])):.2f} s of occupancy, as the books; "
                  f"training {float(number(n['compute_s'])):.2f} s of {float(number(n['told_compute_s'])):.2f} s",
        broken.COST_SUMS,
    ),
    _by_rows(
        "balance_bills", broken.BILL_LINES,
        lambda n: f"{n['lines']} lines of {n['settled']} settled groups say what their running totals do; {n['unsettled']} groups unsettled",
        broken.BILL_SUMS,
    ),
    _by_rows(
        "balance_books", broken.BOOKS,
        lambda n: f"running totals of {number(n['turns'])} turns and {float(number(n['occupancy_s'])):.2f} s of occupancy, and lines of "
                  f"{n['executions']} executions and of {n['used']} that steps used up, are what their facts say; {n['unsettled']} groups unsettled",
        broken.BOOK_SUMS,
    ),
    _not_empty,
    _staleness_law,
)  # fmt: skip
