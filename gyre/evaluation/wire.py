"""Executions and findings on their two ways: JSON (HTTP) and protobuf (gRPC). Pure.

The HTTP request is a JSON object with `schema` 1, `evaluator`, `kind` and the fields of Execution; the answer one with
`score` and any of `valid`, `evidence`, `looked_at`, `detail`. What it holds beside these is ignored.
"""

import json
from typing import Any

import msgspec

from gyre.api.evaluation.v1 import evaluation_pb2 as pb
from gyre.errors import InvalidInput
from gyre.evaluation.evaluator import Execution, Finding, Path, ToolCall

HTTP_SCHEMA = 1

_finding = msgspec.json.Decoder(Finding)


def request_json(execution: Execution, evaluator: str, kind: str) -> bytes:
    """The body of a POST."""
    fields = msgspec.structs.asdict(execution)
    return msgspec.json.encode({"schema": HTTP_SCHEMA, "evaluator": evaluator, "kind": kind, **fields})


def finding_of_json(body: bytes) -> Finding:
    """Raises InvalidInput where it is no answer: not JSON, no `score`, NaN, wrong types."""
    try:
        return _finding.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidInput(f'not an answer of the form {{"score": 0.5}}: {error}') from error


def request_proto(execution: Execution, evaluator: str, kind: str) -> pb.EvaluateRequest:
    return pb.EvaluateRequest(
        evaluator=evaluator, kind=kind, sample_id=execution.sample_id, execution_id=execution.execution_id,
        group_id=execution.group_id, attempt=execution.attempt, task_type=execution.task_type,
        payload_json="" if execution.payload is None else json.dumps(execution.payload), ending=execution.ending,
        reason=execution.reason, partial=execution.partial, outcome=execution.outcome, milestones=execution.milestones,
        evidence_json=json.dumps(execution.evidence), turns=execution.turns,
        paths=[pb.Path(**msgspec.structs.asdict(path)) for path in execution.paths],
        tool_calls=[pb.ToolCall(**msgspec.structs.asdict(call)) for call in execution.tool_calls],
    )  # fmt: skip


def execution_of_proto(message: pb.EvaluateRequest) -> Execution:
    return Execution(
        sample_id=message.sample_id, execution_id=message.execution_id, group_id=message.group_id,
        attempt=message.attempt, task_type=message.task_type,
        payload=json.loads(message.payload_json) if message.payload_json else None, ending=message.ending,
        reason=message.reason, partial=message.partial, outcome=message.outcome, milestones=dict(message.milestones),
        evidence=_object(message.evidence_json), turns=message.turns,
        paths=[
            Path(call_id=path.call_id, role=path.role, tokens=path.tokens, text=path.text, cut=path.cut)
            for path in message.paths
        ],
        tool_calls=[
            ToolCall(call_index=call.call_index, call_id=call.call_id, arguments=call.arguments)
            for call in message.tool_calls
        ],
    )  # fmt: skip


def finding_proto(finding: Finding) -> pb.EvaluateResponse:
    return pb.EvaluateResponse(
        score=finding.score, valid=finding.valid, evidence_json=json.dumps(finding.evidence),
        looked_at=finding.looked_at, detail=finding.detail,
    )  # fmt: skip


def finding_of_proto(message: pb.EvaluateResponse) -> Finding:
    """Raises InvalidInput where the evidence is no JSON object."""
    return Finding(
        score=message.score, valid=message.valid, evidence=_object(message.evidence_json),
        looked_at=list(message.looked_at), detail=message.detail,
    )  # fmt: skip


def _object(text: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"evidence_json is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"evidence_json must be a JSON object, not {type(found).__name__}")
    return found
