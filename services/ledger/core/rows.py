"""Facts → rows. One function a record type; what it returns is all that the fact adds to the books."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np

from gyre import records as r
from gyre.ids import sample_id, split_sample_id
from gyre.numbers import is_count
from services.ledger.core.costs import by_version, training_shares

Row = tuple[str, dict[str, Any]]
"""Table name and its columns, without `run`."""

INT64_MAX = 2**63 - 1


def rows_of(fact: r.Fact) -> list[Row]:
    """All rows a fact adds. Raises KeyError for a type that has no rule (a new record type was forgotten here)."""
    return list(_RULES[type(fact)](fact))


def to_json(value: Any) -> str:
    """JSON text; NaN becomes null, so that every database and reader takes it."""
    return msgspec.json.encode(value).decode()


def text(value: str) -> str:
    """Without NUL, which PostgreSQL cannot store and no book needs."""
    return value.replace("\x00", "\ufffd")


def trace_id(traceparent: str) -> str:
    """The trace of a W3C traceparent, empty when there is none."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""


def _fields(fact: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(fact, name) for name in names}


def _run_started(fact: r.RunStarted) -> Iterable[Row]:
    yield "runs", _fields(fact, "steps", "fingerprint", "at_s")


def _group_submitted(fact: r.GroupSubmitted) -> Iterable[Row]:
    task = fact.task
    yield "groups", {
        **_fields(fact, "group_id", "tier", "at_s"),
        **_fields(task, "task_id", "task_type", "tenant", "environment", "purpose", "group_size", "temperature", "top_p"),
        "seed": _int64(task.seed), "limits_json": to_json(task.limits), "payload_json": to_json(task.payload),
    }  # fmt: skip


def _group_dispatched(fact: r.GroupDispatched) -> Iterable[Row]:
    yield "dispatches", {
        **_fields(fact, "group_id", "attempt_base", "task_type", "tenant", "purpose", "tier", "policy_version",
                  "queue_wait_s", "promotions", "fingerprint", "at_s"),
        "executions": len(fact.execution_ids),
    }  # fmt: skip
    for execution in fact.execution_ids:
        member = execution.rpartition("-e")[2]
        yield "executions", {
            "execution_id": execution, "group_id": fact.group_id, "purpose": fact.purpose,
            "member": int(member) if is_count(member) else -1,
        }  # fmt: skip


def _attempt(fact: Any) -> dict[str, Any]:
    return {
        **_fields(fact, "execution_id", "attempt", "group_id"),
        "sample_id": sample_id(fact.execution_id, fact.attempt),
    }


def _leased(fact: r.ExecutionLeased) -> Iterable[Row]:
    yield "attempts", {**_attempt(fact), "holder": fact.holder, "leased_at_s": fact.at_s}
    yield "costs", _fields(fact, "execution_id", "attempt", "group_id")


def _started(fact: r.ExecutionStarted) -> Iterable[Row]:
    yield "attempts", {
        **_attempt(fact), **_fields(fact, "environment", "image_digest", "dependency_snapshot", "is_replay"),
        "seed": _int64(fact.seed), "tool_versions_json": to_json(fact.tool_versions), "started_at_s": fact.at_s,
    }  # fmt: skip


def _ended(fact: r.ExecutionEnded) -> Iterable[Row]:
    found = fact.evaluation
    yield "attempts", {
        **_attempt(fact),
        **_fields(fact, "task_type", "tenant", "purpose", "ending", "reason", "turns", "tokens_sampled", "calls",
                  "external_calls", "quota_left", "occupancy_s", "policy_version", "model_wait_s", "snapshots",
                  "rollback_turns"),
        "detail": text(fact.detail),
        "outcome": found.outcome if found and found.valid else None,
        "evaluation_valid": found.valid if found else None,
        "evaluation_tries": found.tries if found else None,
        "placeholder": found.placeholder if found else None,
        "milestones_json": to_json(found.milestones if found else {}),
        "milestone_turns_json": to_json(found.milestone_turns if found else {}),
        "evaluation_evidence_json": to_json(found.evidence if found else {}),
        "ended_at_s": fact.at_s, "trace_id": trace_id(fact.traceparent),
    }  # fmt: skip
    yield "costs", _fields(fact, "execution_id", "attempt", "group_id", "external_calls", "occupancy_s")
    yield "book_totals", _fields(fact, "purpose", "external_calls", "occupancy_s")


def _call(fact: r.CallRecorded) -> Iterable[Row]:
    whole = len(fact.versions) // 4 * 4  # also a record that is set aside is a turn
    versions = r.array(fact.versions[:whole], "int32")
    known = versions.size > 0
    yield "calls", {
        **_fields(fact, "call_id", "execution_id", "group_id", "attempt", "call_index", "purpose", "role", "role_rule",
                  "parent", "prompt_tokens", "finish_reason", "delivered", "started_at_s", "first_token_at_s", "at_s", "wait_s"),
        "sample_id": sample_id(fact.execution_id, fact.attempt),
        "new_tokens": len(fact.prompt_delta) // 4, "output_tokens": len(fact.output_ids) // 4,
        "version_min": int(versions.min()) if known else None,
        "version_mean": float(np.mean(versions)) if known else None,
        "version_max": int(versions.max()) if known else None,
        "temperature": fact.sampling.temperature, "top_p": fact.sampling.top_p, "seed": _int64(fact.sampling.seed),
        "cells_json": to_json(fact.cells),
    }  # fmt: skip
    tokens = len(fact.output_ids) // 4
    yield "costs", {**_fields(fact, "execution_id", "attempt", "group_id"), "turns": 1, "tokens": tokens}
    yield "book_totals", {"purpose": fact.purpose, "turns": 1, "tokens": tokens}
    for version, counted in by_version(versions, tokens).items():
        yield "usage", {
            **_fields(fact, "execution_id", "attempt"), "version": version, "turns": counted / tokens if tokens else 1.0, "tokens": counted,
        }  # fmt: skip


def _set_aside(fact: r.CallSetAside) -> Iterable[Row]:
    yield "set_aside", {**msgspec.structs.asdict(fact), "detail": text(fact.detail)}


def _scored(fact: r.RewardScored) -> Iterable[Row]:
    values = msgspec.structs.asdict(fact)
    values |= {"detail": text(fact.detail), "evidence_json": text(to_json(values.pop("evidence")))}
    values["looked_at_json"] = text(to_json(values.pop("looked_at")))
    values["trace_id"] = trace_id(values.pop("traceparent"))
    yield "scores", values


def _ready(fact: r.SampleReady) -> Iterable[Row]:
    values = msgspec.structs.asdict(fact)
    values["rewards_json"] = to_json(values.pop("rewards"))
    for name in ("segment_starts", "segment_advantages"):
        values[f"{name}_json"] = to_json(values.pop(name))
    values["trace_id"] = trace_id(values.pop("traceparent"))
    yield "samples", values


def _dropped(fact: r.SampleDropped) -> Iterable[Row]:
    values = msgspec.structs.asdict(fact)
    values["detail"] = text(values["detail"])
    values["trace_id"] = trace_id(values.pop("traceparent"))
    yield "drops", values


def _opened(fact: r.StepOpened) -> Iterable[Row]:
    yield "steps", {"step": fact.step, "burst": fact.burst, "opened_at_s": fact.at_s}


def _extended(fact: r.BatchExtended) -> Iterable[Row]:
    yield (
        "batch_groups",
        {**_fields(fact, "step", "group_id", "turns", "turns_total", "at_s"), "samples": len(fact.sample_ids)},
    )
    for micro in fact.micro_ids:
        yield "micro", {"micro_id": micro, "step": fact.step, "group_id": fact.group_id}


def _overdue(fact: r.BatchOverdue) -> Iterable[Row]:
    yield "overdue", {
        **_fields(fact, "step", "ordinal", "policy", "turns", "turns_target", "waited_s", "at_s"),
        "executions": len(fact.execution_ids), "execution_ids_json": to_json(fact.execution_ids),
    }  # fmt: skip


def _closed(fact: r.BatchClosed) -> Iterable[Row]:
    yield "batches", {
        **_fields(fact, "step", "cause", "turns", "turns_target", "divisor", "truncated_share", "no_gradient",
                  "staleness_mean", "staleness_max", "at_s"),
        "groups": len(fact.groups), "samples": len(fact.sample_ids), "micros": len(fact.micro_ids) - len(fact.elites),
        "failed_share_json": to_json(fact.failed_share), "origins_json": to_json(fact.origins),
    }  # fmt: skip
    for group in fact.groups:
        yield "batch_groups", {"step": fact.step, "group_id": group}
    for position, sample in enumerate(fact.elites):
        yield "elite_replays", {"step": fact.step, "sample_id": sample, "position": position}
    for position, sample in enumerate(fact.sample_ids):
        yield "batch_samples", {"step": fact.step, "sample_id": sample, "position": position}


def _updated(fact: r.StepUpdated) -> Iterable[Row]:
    yield "steps", {
        "step": fact.step, "version": fact.version, "samples": len(fact.sample_ids),
        "metrics_json": to_json(fact.metrics), "updated_at_s": fact.at_s,
        "targets": int(fact.metrics.get("targets", 0)), "compute_s": fact.metrics.get("compute_s", 0.0),
    }  # fmt: skip
    own, shares = set(fact.sample_ids), training_shares(fact)
    for sample in fact.sample_ids:
        yield "step_samples", {
            "step": fact.step, "sample_id": sample, "metrics_json": to_json(fact.sample_metrics.get(sample, {})), **shares[sample],
        }  # fmt: skip
    for sample, share in shares.items():
        execution, attempt = split_sample_id(sample)
        is_elite = sample not in own
        if is_elite:
            yield "elite_replays", {"step": fact.step, "sample_id": sample, **share}
        yield "costs", {
            "execution_id": execution, "attempt": attempt, "group_id": execution.rpartition("-e")[0], "trained": int(not is_elite), **share,
        }  # fmt: skip
    for sample, reason in fact.set_aside.items():
        yield "refused", {"step": fact.step, "sample_id": sample, "reason": text(reason)}
    for micro, cell in fact.micro_cells.items():
        yield "micro", {"micro_id": micro, "step": fact.step, "cell": cell}


def _whole(table: str) -> Callable[[Any], Iterable[Row]]:
    """Every field of the record is a column of the same name."""
    return lambda fact: [(table, msgspec.structs.asdict(fact))]


def _alarm(fact: r.AlarmRaised) -> Iterable[Row]:
    yield "alarms", {
        "key": f"{fact.service}.{fact.kind}.{fact.at_s:.6f}", **_fields(fact, "service", "kind", "at_s"),
        "message": text(fact.message), "values_json": to_json(fact.values),
    }  # fmt: skip


def _commanded(fact: r.ExecutionCommanded) -> Iterable[Row]:
    yield "commands", {
        **_fields(fact, "execution_id", "ordinal", "group_id", "command"), "said_by": text(fact.by),
        "reason": text(fact.reason), "commanded_at_s": fact.at_s,
    }  # fmt: skip


def _carried_out(fact: r.ExecutionSuspended | r.ExecutionResumed) -> Iterable[Row]:
    yield "commands", {**_fields(fact, "execution_id", "ordinal", "group_id", "attempt"), "carried_out_at_s": fact.at_s}


def _int64(value: int) -> int:
    """Seeds may use all 64 bits, columns hold 63 and a sign: the same bits, read as signed."""
    return value if value <= INT64_MAX else value - 2**64


_RULES: dict[type, Callable[[Any], Iterable[Row]]] = {
    r.RunStarted: _run_started,
    r.GroupSubmitted: _group_submitted,
    r.GroupDispatched: _group_dispatched,
    r.ExecutionLeased: _leased,
    r.ExecutionStarted: _started,
    r.ExecutionEnded: _ended,
    r.ExecutionCommanded: _commanded,
    r.ExecutionSuspended: _carried_out,
    r.ExecutionResumed: _carried_out,
    r.CallRecorded: _call,
    r.CallSetAside: _set_aside,
    r.RoleChanged: _whole("role_changes"),
    r.CellReported: _whole("cell_reports"),
    r.BurstOpened: _whole("bursts"),
    r.PlanChosen: _whole("plans"),
    r.WaterlevelChanged: _whole("waterlevel"),
    r.WeightsPublished: _whole("weights"),
    r.RewardScored: _scored,
    r.RewardWeighed: _whole("weighings"),
    r.SampleReady: _ready,
    r.SampleDropped: _dropped,
    r.StepOpened: _opened,
    r.BatchExtended: _extended,
    r.BatchOverdue: _overdue,
    r.BatchClosed: _closed,
    r.StepJoined: _whole("joins"),
    r.StepUpdated: _updated,
    r.AlarmRaised: _alarm,
}

FACT_TYPES: tuple[type, ...] = tuple(_RULES)
"""Everything the ledger takes in: every type of the facts stream."""
