"""Messages and facts about one lease, built from it: what the environment is sent, what goes on record."""

import json

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.errors import InvalidInput
from gyre.ids import sample_id
from gyre.records import ExecutionEnded, ExecutionStarted
from services.rollout.core.commands import Order
from services.rollout.core.ending import Said, check_ending, check_evaluation
from services.rollout.core.keys import Claims, sign
from services.rollout.core.leases import Lease
from services.rollout.gateway.running import Totals


def sample_of(lease: Lease) -> str:
    return sample_id(lease.execution_id, lease.attempt)


def assignment(lease: Lease, traceparent: str, secret: bytes) -> pb.AttachResponse:
    """The task, its limits, and a key that opens this attempt's model calls and nothing else."""
    task, limits = lease.task.task, lease.task.task.limits
    claims = Claims(
        execution_id=lease.execution_id, attempt=lease.attempt, group_id=lease.task.group_id, purpose=task.purpose,
        seed=lease.task.seed, temperature=task.temperature, top_p=task.top_p, turns_max=limits.turns_max,
        context_tokens_max=limits.context_tokens_max, output_tokens_max=limits.output_tokens_max, traceparent=traceparent,
        task_type=task.task_type, environment=task.environment, tokens_max=limits.tokens_max, calls_max=limits.calls_max,
        concurrency_max=limits.concurrency_max,
    )  # fmt: skip
    return pb.AttachResponse(
        request_id=f"assign-{sample_of(lease)}", execution_id=lease.execution_id, attempt=lease.attempt,
        assignment=pb.Assignment(
            task_id=task.task_id, task_type=task.task_type, seed=task.seed, payload_json=json.dumps(task.payload, default=str),
            api_key=sign(claims, secret), wall_s=limits.wall_s, turns_max=limits.turns_max,
            context_tokens_max=limits.context_tokens_max, output_tokens_max=limits.output_tokens_max,
            temperature=task.temperature, top_p=task.top_p, traceparent=traceparent,
        ),
    )  # fmt: skip


def cancel(execution_id: str, attempt: int, reason: str) -> pb.AttachResponse:
    name = f"cancel-{sample_id(execution_id, attempt)}"
    return pb.AttachResponse(
        request_id=name, execution_id=execution_id, attempt=attempt, cancel=pb.Cancel(reason=reason)
    )


def standing(execution_id: str, attempt: int, order: Order) -> pb.AttachResponse:
    """The standing order: stop the execution's wall clock, let it run again, or end it now."""
    match order.command:
        case "suspend":
            body = {"suspend": pb.Suspend(reason=order.reason)}
        case "truncate":
            body = {"truncate": pb.Truncate(reason=order.reason)}
        case _:
            body = {"resume": pb.Resume()}
    (word,) = body
    name = f"{word}-{sample_id(execution_id, attempt)}"
    return pb.AttachResponse(request_id=name, execution_id=execution_id, attempt=attempt, **body)


def limit_reached(execution_id: str, attempt: int, limit: str) -> pb.AttachResponse:
    """Its budget is used up: stop and score, for `limit`."""
    name = f"limit-{sample_id(execution_id, attempt)}"
    return pb.AttachResponse(
        request_id=name, execution_id=execution_id, attempt=attempt, truncate=pb.Truncate(reason=limit)
    )


def started_fact(lease: Lease, said: pb.Started, at_s: float) -> ExecutionStarted:
    return ExecutionStarted(
        execution_id=lease.execution_id, group_id=lease.task.group_id, attempt=lease.attempt,
        environment=lease.task.task.environment, image_digest=said.image_digest, seed=lease.task.task.seed,
        tool_versions=dict(said.tool_versions), dependency_snapshot=said.dependency_snapshot, at_s=at_s,
        is_replay=said.is_replay,
    )  # fmt: skip


def ended_fact(
    lease: Lease, said: Said, totals: Totals, leased_at_s: float, started_at_s: float, now_s: float, traceparent: str
) -> ExecutionEnded:
    """Occupancy runs from Started to this ending, whoever caused it (C6); 0 where the environment never came up."""
    task = lease.task.task
    return ExecutionEnded(
        execution_id=lease.execution_id, group_id=lease.task.group_id, attempt=lease.attempt, task_type=task.task_type,
        tenant=task.tenant, purpose=task.purpose, ending=said.ending, reason=said.reason, detail=said.detail,
        evaluation=said.evaluation, turns=totals.turns, tokens_sampled=totals.tokens_sampled, calls=totals.calls,
        external_calls=said.external_calls, occupancy_s=max(0.0, now_s - started_at_s) if started_at_s else 0.0,
        policy_version=lease.task.policy_version, leased_at_s=leased_at_s, started_at_s=started_at_s, at_s=now_s,
        model_wait_s=totals.model_wait_s, traceparent=traceparent, snapshots=said.snapshots, rollback_turns=said.rollback_turns,
        quota_left=said.quota_left,
    )  # fmt: skip


def checked_ending(message: pb.Ended, has_started: bool) -> Said:
    """What breaks the contract is an ending of its own, failed(environment_invalid), with what was wrong."""
    try:
        evaluation = None
        if message.HasField("evaluation"):
            said = message.evaluation
            evaluation = check_evaluation(
                said.outcome, said.valid, said.milestones, said.milestone_weights, said.evidence_json, said.tries,
                said.milestone_turns,
            )  # fmt: skip
        return check_ending(
            message.ending, message.reason, message.detail, message.external_calls, evaluation, has_started,
            message.snapshots, message.rollback_turns, message.quota_left if message.HasField("quota_left") else -1,
        )  # fmt: skip
    except InvalidInput as error:
        return Said("failed", "environment_invalid", str(error)[:2000], None)
