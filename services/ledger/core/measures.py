"""What the facts of a run measure, for dashboards: one table of instruments, one function from a fact to its measurements (E, C13).

Names are OpenTelemetry's (`gyre.waterlevel`); Prometheus shows them as `gyre_waterlevel`. Counters count from the ledger's start: a restart is a
counter's reset, which every backend knows. What must be exact is asked of the books, not of these.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from gyre import records as r

Kind = Literal["counter", "gauge", "histogram"]
Labels = dict[str, str]
Measured = tuple[str, float, Labels]
"""Name, value, labels."""


@dataclass(frozen=True)
class Instrument:
    """One thing that is measured; `unit` as UCUM writes it, "1" for a share or a number of things."""

    kind: Kind
    unit: str
    about: str


INSTRUMENTS: dict[str, Instrument] = {
    "gyre.waterlevel": Instrument("gauge", "1", "Executions dispatched and not finished: w(t) (A3)"),
    "gyre.rollout.capacity": Instrument("gauge", "1", "Executions that cells in rollout can hold: C_R(t) (A3)"),
    "gyre.outstanding.groups": Instrument("gauge", "1", "Groups dispatched and not consumed by a batch (A4)"),
    "gyre.policy.version": Instrument("gauge", "1", "Newest published policy version"),
    "gyre.cell.training": Instrument(
        "gauge", "1", "1 where the cell trains, 0 where it serves; on its way, what it leaves"
    ),
    "gyre.cell.capacity": Instrument("gauge", "1", "Executions the cell can hold; 0 is a lost cell"),
    "gyre.role.phase": Instrument("histogram", "s", "Own work of one phase of a role change"),
    "gyre.queue.wait": Instrument("histogram", "s", "From a group's submission to its dispatch, by tier (C1)"),
    "gyre.queue.promotions": Instrument("counter", "1", "Promotions by waiting, by tier (C1)"),
    "gyre.executions": Instrument("counter", "1", "Attempts that ended, by task type and ending"),
    "gyre.execution.duration": Instrument("histogram", "s", "From an environment's start to the attempt's ending"),
    "gyre.turns": Instrument("counter", "1", "Model calls recorded at the gateway (C6)"),
    "gyre.tokens.sampled": Instrument("counter", "1", "Tokens sampled by the policy"),
    "gyre.occupancy": Instrument("counter", "s", "Lifetime of environment instances (C6)"),
    "gyre.external.calls": Instrument("counter", "1", "Calls that environments made (C6)"),
    "gyre.model.wait": Instrument("histogram", "s", "One attempt's calls waiting for a cell, summed"),
    "gyre.reward": Instrument("histogram", "1", "Total reward of a sample, by task type"),
    "gyre.samples.ready": Instrument("counter", "1", "Samples that may be trained, by task type"),
    "gyre.samples.trained": Instrument("counter", "1", "Samples whose gradient went into an update"),
    "gyre.samples.dropped": Instrument("counter", "1", "Samples that left training, by reason (C9)"),
    "gyre.records.set_aside": Instrument("counter", "1", "Call records that cannot be used, by reason"),
    "gyre.batch.staleness.mean": Instrument(
        "gauge", "1", "Mean age of the newest batch's groups, in optimizer steps (A5)"
    ),
    "gyre.batch.staleness.max": Instrument(
        "gauge", "1", "Oldest group of the newest batch, in optimizer steps (A5, C8)"
    ),
    "gyre.batch.truncated.share": Instrument("gauge", "1", "Share of truncated samples in the newest batch (C5)"),
    "gyre.batch.no_gradient": Instrument("counter", "1", "Batches without any gradient (C10)"),
    "gyre.batch.turns": Instrument("gauge", "1", "Interaction turns of the newest batch (C5)"),
    "gyre.steps": Instrument("counter", "1", "Optimizer updates"),
    "gyre.step.duration": Instrument("histogram", "s", "From a step's opening to its update"),
    "gyre.step.metric": Instrument(
        "gauge", "1", "What the trainer measured in the newest step: loss, grad_norm, kl_k3 …"
    ),
    "gyre.step.not_finite": Instrument("counter", "1", "Figures of steps that were NaN or infinite"),
    "gyre.joins": Instrument("counter", "1", "Satellites that joined a step (A8)"),
    "gyre.alarms": Instrument("counter", "1", "Alarms raised, by kind"),
}

SECONDS = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 14400, 28800)
"""Bucket borders of durations: from a small example's calls to a task of a working day."""
REWARDS = (-1.0, -0.5, -0.1, 0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


def measured(fact: r.Fact) -> Iterator[Measured]:
    """The measurements of one fact; none of a kind that no instrument is about."""
    if known := _OF.get(type(fact)):
        yield from known(fact)


def _waterlevel(fact: r.WaterlevelChanged) -> Iterator[Measured]:
    yield "gyre.waterlevel", fact.waterlevel, {}
    yield "gyre.rollout.capacity", fact.capacity, {}
    yield "gyre.outstanding.groups", fact.outstanding_groups, {}


def _published(fact: r.WeightsPublished) -> Iterator[Measured]:
    yield "gyre.policy.version", fact.version, {}


def _role(fact: r.RoleChanged) -> Iterator[Measured]:
    cell = {"cell": fact.cell}
    if fact.phase == r.cell.CELL_PHASES[fact.target][-1]:
        yield "gyre.cell.training", float(fact.target == "training"), cell
    if fact.duration_s:
        yield "gyre.role.phase", fact.duration_s, {"target": fact.target, "phase": fact.phase}


def _cell(fact: r.CellReported) -> Iterator[Measured]:
    yield "gyre.cell.capacity", fact.capacity, {"cell": fact.cell}


def _dispatched(fact: r.GroupDispatched) -> Iterator[Measured]:
    tier = {"tier": fact.tier}
    yield "gyre.queue.wait", fact.queue_wait_s, tier
    if fact.promotions:
        yield "gyre.queue.promotions", fact.promotions, tier


def _ended(fact: r.ExecutionEnded) -> Iterator[Measured]:
    about = {"task_type": fact.task_type, "tenant": fact.tenant, "purpose": fact.purpose}
    yield "gyre.executions", 1, {**about, "ending": fact.ending}
    if fact.started_at_s:
        yield (
            "gyre.execution.duration",
            max(0.0, fact.at_s - fact.started_at_s),
            {"task_type": fact.task_type, "ending": fact.ending},
        )
        yield "gyre.model.wait", fact.model_wait_s, {"task_type": fact.task_type}
    for name, value in (
        ("gyre.turns", fact.turns), ("gyre.tokens.sampled", fact.tokens_sampled), ("gyre.occupancy", fact.occupancy_s),
        ("gyre.external.calls", fact.external_calls),
    ):  # fmt: skip
        if value:
            yield name, value, about


def _ready(fact: r.SampleReady) -> Iterator[Measured]:
    yield "gyre.samples.ready", 1, {"task_type": fact.task_type}
    yield "gyre.reward", fact.reward, {"task_type": fact.task_type}


def _dropped(fact: r.SampleDropped) -> Iterator[Measured]:
    yield "gyre.samples.dropped", 1, {"reason": fact.reason, "task_type": fact.task_type}


def _set_aside(fact: r.CallSetAside) -> Iterator[Measured]:
    yield "gyre.records.set_aside", 1, {"reason": fact.reason}


def _closed(fact: r.BatchClosed) -> Iterator[Measured]:
    yield "gyre.batch.staleness.mean", fact.staleness_mean, {}
    yield "gyre.batch.staleness.max", fact.staleness_max, {}
    yield "gyre.batch.truncated.share", fact.truncated_share, {}
    yield "gyre.batch.turns", fact.turns, {}
    if fact.no_gradient:
        yield "gyre.batch.no_gradient", 1, {}


def _updated(fact: r.StepUpdated) -> Iterator[Measured]:
    yield "gyre.steps", 1, {}
    yield "gyre.samples.trained", len(fact.sample_ids), {}
    yield "gyre.step.duration", max(0.0, fact.at_s - fact.opened_at_s), {}
    for name, value in fact.metrics.items():
        if isfinite(value):
            yield "gyre.step.metric", value, {"metric": name}
        else:  # a gauge cannot say it, and one that stands still must not hide it
            yield "gyre.step.not_finite", 1, {"metric": name}


def _joined(fact: r.StepJoined) -> Iterator[Measured]:
    yield "gyre.joins", 1, {"mid_batch": str(fact.mid_batch).lower()}


def _alarm(fact: r.AlarmRaised) -> Iterator[Measured]:
    yield "gyre.alarms", 1, {"kind": fact.kind, "service": fact.service}


_OF: dict[type, Callable[[Any], Iterator[Measured]]] = {
    r.WaterlevelChanged: _waterlevel,
    r.WeightsPublished: _published,
    r.RoleChanged: _role,
    r.CellReported: _cell,
    r.GroupDispatched: _dispatched,
    r.ExecutionEnded: _ended,
    r.SampleReady: _ready,
    r.SampleDropped: _dropped,
    r.CallSetAside: _set_aside,
    r.BatchClosed: _closed,
    r.StepUpdated: _updated,
    r.StepJoined: _joined,
    r.AlarmRaised: _alarm,
}
