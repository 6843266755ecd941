"""What is said of one finished call: its record, its reply, its span."""

import asyncio
from functools import partial
from typing import Any

from gyre.records import CallRecorded, pack
from gyre.telemetry import emit_span
from services.rollout.core.classify import Verdict
from services.rollout.core.keys import Claims
from services.rollout.core.reply import Reply
from services.rollout.core.session import Prompt
from services.rollout.core.toolcalls import Parsed
from services.rollout.gateway.pool import Work

LATER_S = 0.005
"""What nobody waits for (spans, roles) is made when what somebody waits for is on its way."""


def _later(*arguments: Any, **attributes: Any) -> None:
    asyncio.get_running_loop().call_later(LATER_S, partial(emit_span, *arguments, **attributes))


def record_of(
    claims: Claims, role: Verdict, prompt: Prompt, work: Work, index: int, parsed: Parsed, is_context_bound: bool, is_watched: bool,
    at_s: float,
) -> CallRecorded:  # fmt: skip
    """The prompt as what its parent's context lacks."""
    if work.finish == "aborted":
        finish = "cancelled"
    elif work.finish == "length":
        finish = "context" if is_context_bound else "length"
    else:
        finish = "tool_calls" if parsed.calls else "stop"
    return CallRecorded(
        call_id=work.call_id, execution_id=claims.execution_id, group_id=claims.group_id, attempt=claims.attempt,
        call_index=index, purpose=claims.purpose, parent=prompt.parent.call_id, parent_tokens=prompt.kept,
        prompt_delta=pack(prompt.delta, "int32"), prompt_tokens=len(prompt.ids), output_ids=pack(work.ids, "int32"),
        logprobs=pack(work.logprobs, "float32"), versions=pack(work.versions, "int32"), sampling=work.sampling,
        finish_reason=finish, role=role.role, role_rule=role.rule, thread=role.thread, message_digest=prompt.digest.hex(),
        turn_digest=prompt.turn_digest(parsed).hex(),
        tool_payloads={call.call_id: call.arguments for call in parsed.calls}, cells=work.cells,
        delivered=is_watched and finish != "cancelled", started_at_s=work.arrived_s,
        first_token_at_s=work.first_token_at_s, at_s=at_s, wait_s=work.wait_s, reused_tokens=work.reused_tokens,
    )  # fmt: skip


def reply_of(record: CallRecorded, model: str, parsed: Parsed) -> Reply:
    finish = {"context": "length", "cancelled": "stop"}.get(record.finish_reason, record.finish_reason)
    return Reply(
        record.call_id, model, int(record.started_at_s), parsed, finish, record.prompt_tokens,
        len(record.output_ids) // 4, record.reused_tokens,
    )  # fmt: skip


def trace_call(claims: Claims, record: CallRecorded, ended_at_s: float) -> None:
    """The span `chat policy`, up to where its record is stored and its reply may leave; made later."""
    asyncio.get_running_loop().call_later(LATER_S, _trace_call, claims, record, ended_at_s)


def _trace_call(claims: Claims, record: CallRecorded, ended_at_s: float) -> None:
    versions = memoryview(record.versions).cast("i")
    emit_span(
        "chat policy", record.started_at_s, ended_at_s, claims.traceparent,
        **{
            "gen_ai.operation.name": "chat", "gen_ai.request.model": "policy",
            "gen_ai.usage.input_tokens": record.prompt_tokens, "gen_ai.usage.output_tokens": len(versions),
            "gen_ai.response.finish_reasons": [record.finish_reason], "gyre.execution": record.execution_id,
            "gyre.attempt": record.attempt, "gyre.call": record.call_id, "gyre.cells": record.cells,
            "gyre.wait_s": record.wait_s, "gyre.first_token_s": max(0.0, record.first_token_at_s - record.started_at_s),
            "gyre.policy_version.min": min(versions), "gyre.policy_version.max": max(versions),
        },
    )  # fmt: skip


class Idle:
    """Spans `harness`: stretches in which an execution has no open call, so that the ball is in its environment's field."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, str, str, int]] = {}
        """Sample → (since, its execution's traceparent, execution, attempt)."""

    def begins(self, sample: str, at_s: float, traceparent: str, execution_id: str, attempt: int) -> None:
        """Repeats change nothing."""
        self._since.setdefault(sample, (at_s, traceparent, execution_id, attempt))

    def ends(self, sample: str, at_s: float) -> None:
        """A call has come, or the ending."""
        if (stretch := self._since.pop(sample, None)) is not None:
            since_s, traceparent, execution, attempt = stretch
            _later("harness", since_s, at_s, traceparent, **{"gyre.execution": execution, "gyre.attempt": attempt})
