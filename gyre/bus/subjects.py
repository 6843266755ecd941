"""Subjects `gyre.v1.<run>.<noun>.<event>[.<key>]` and natural keys, one line a record type.

The natural key names the *fact*, not the message: whoever stores or acts on a fact does so once per key, however often it is delivered.
It is also the message's `Nats-Msg-Id`, which lets the server drop most repeats early.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from gyre import records as r
from gyre.errors import InvalidInput
from gyre.ids import is_token, sample_id

PREFIX = "gyre.v1"

_Rule = tuple[str, Callable[[Any], str], Callable[[Any], str]]

_RULES: dict[type, _Rule] = {
    # record type: (noun.event, key token of the subject, natural key within noun.event)
    r.TaskDispatched: ("task.dispatched", lambda m: m.tier, lambda m: f"{m.execution_id}.{m.attempt_base}"),
    r.MicroStep: ("micro.ready", lambda m: str(m.step), lambda m: m.micro_id),
    r.RunStarted: ("run.started", lambda m: "", lambda m: str(m.steps)),
    r.GroupSubmitted: ("group.submitted", lambda m: m.group_id, lambda m: m.group_id),
    r.GroupDispatched: ("group.dispatched", lambda m: m.group_id, lambda m: f"{m.group_id}.{m.attempt_base}"),
    r.ExecutionLeased: ("execution.leased", lambda m: m.execution_id, lambda m: sample_id(m.execution_id, m.attempt)),
    r.ExecutionStarted: ("execution.started", lambda m: m.execution_id, lambda m: sample_id(m.execution_id, m.attempt)),
    r.ExecutionEnded: ("execution.ended", lambda m: m.execution_id, lambda m: sample_id(m.execution_id, m.attempt)),
    r.ExecutionCommanded: ("execution.commanded", lambda m: m.execution_id, lambda m: f"{m.execution_id}.{m.ordinal}"),
    r.ExecutionSuspended: ("execution.suspended", lambda m: m.execution_id, lambda m: f"{m.execution_id}.{m.ordinal}"),
    r.ExecutionResumed: ("execution.resumed", lambda m: m.execution_id, lambda m: f"{m.execution_id}.{m.ordinal}"),
    r.CallRecorded: ("call.recorded", lambda m: m.execution_id, lambda m: m.call_id),
    r.CallSetAside: ("call.set_aside", lambda m: m.execution_id, lambda m: m.call_id),
    r.RoleChanged: ("cell.role", lambda m: m.cell, lambda m: f"{m.cell}.{m.change}.{m.phase}"),
    r.CellReported: ("cell.reported", lambda m: m.cell, lambda m: f"{m.cell}.{m.at_s:.6f}"),
    r.BurstOpened: ("burst.opened", lambda m: "", lambda m: str(m.burst)),
    r.PlanChosen: ("plan.chosen", lambda m: "", lambda m: str(m.plan)),
    r.WaterlevelChanged: (
        "waterlevel.changed",
        lambda m: "",
        lambda m: f"{m.dispatched}.{m.finished}.{m.capacity}.{m.outstanding_groups}.{m.policy_version}",
    ),
    r.WeightsPublished: ("weights.published", lambda m: "", lambda m: str(m.version)),
    r.RewardScored: ("reward.scored", lambda m: m.sample_id, lambda m: f"{m.sample_id}.{m.evaluator}"),
    r.RewardWeighed: ("reward.weighed", lambda m: m.evaluator, lambda m: f"{m.evaluator}.{m.at_s:.6f}"),
    r.SampleReady: ("sample.ready", lambda m: m.sample_id, lambda m: m.sample_id),
    r.SampleDropped: ("sample.dropped", lambda m: m.sample_id, lambda m: m.sample_id),
    r.StepOpened: ("step.opened", lambda m: str(m.step), lambda m: str(m.step)),
    r.BatchExtended: ("batch.extended", lambda m: str(m.step), lambda m: f"{m.step}.{m.group_id}"),
    r.BatchOverdue: ("batch.overdue", lambda m: str(m.step), lambda m: f"{m.step}.{m.ordinal}"),
    r.BatchClosed: ("batch.closed", lambda m: str(m.step), lambda m: str(m.step)),
    r.StepJoined: ("step.joined", lambda m: str(m.step), lambda m: f"{m.step}.{m.cell}.{m.at_s:.6f}"),
    r.StepUpdated: ("step.updated", lambda m: str(m.step), lambda m: str(m.step)),
    r.AlarmRaised: ("alarm.raised", lambda m: m.kind, lambda m: f"{m.service}.{m.kind}.{m.at_s:.6f}"),
}


def subject_of(run: str, record: msgspec.Struct) -> str:
    """The subject a record is published on. Raises InvalidInput when its key could not be one subject token."""
    event, key_of, _ = _RULES[type(record)]
    key = key_of(record)
    if not key:
        return f"{PREFIX}.{run}.{event}"
    if not is_token(key):
        raise InvalidInput(f"{key!r} cannot be the key of {event}: use letters, digits, - and _ (at most 128)")
    return f"{PREFIX}.{run}.{event}.{key}"


def natural_key(record: msgspec.Struct) -> str:
    """The name of the fact, unique within a run."""
    event, _, key_of = _RULES[type(record)]
    return f"{event}.{key_of(record)}"


def subject_pattern(run: str, record_type: type, key: str = "*") -> str:
    """The filter that matches every record of a type (or those with `key`)."""
    event = _RULES[record_type][0]
    has_key = record_type not in (r.RunStarted, r.WaterlevelChanged, r.WeightsPublished, r.BurstOpened, r.PlanChosen)
    return f"{PREFIX}.{run}.{event}.{key}" if has_key else f"{PREFIX}.{run}.{event}"
