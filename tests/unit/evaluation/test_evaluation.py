"""The contract of evaluators: bounds of an answer, both ways of travelling, the server (B4, D4)."""

import json

import pytest

from gyre.errors import InvalidInput
from gyre.evaluation import Execution, Finding, Path, ToolCall, checked, serve_async, wire
from gyre.evaluation.serving import _Servicer

EXECUTION = Execution(
    sample_id="g000001-e0-a1", execution_id="g000001-e0", group_id="g000001", attempt=1, task_type="repair",
    payload={"files": ["a.py"]}, ending="timed_out", reason="wall", partial=True, outcome=0.5, milestones={"built": True},
    evidence={"exit": 1}, turns=3, paths=[Path(call_id="c", role="main", tokens=4, text="hello", cut=True)],
    tool_calls=[ToolCall(call_index=1, call_id="t", arguments='{"a": 1}')],
)  # fmt: skip


def test_an_execution_travels_whole_both_ways():
    """D4: the same fields over gRPC and as JSON."""
    assert wire.execution_of_proto(wire.request_proto(EXECUTION, "taste", "learned")) == EXECUTION
    body = json.loads(wire.request_json(EXECUTION, "taste", "learned"))
    assert (body["schema"], body["evaluator"], body["kind"], body["partial"]) == (1, "taste", "learned", True)
    assert body["paths"][0]["text"] == "hello" and body["tool_calls"][0]["arguments"] == '{"a": 1}'


def test_a_finding_travels_whole():
    finding = Finding(score=0.25, evidence={"lines": 2}, looked_at=["diff"], detail="fine")
    assert wire.finding_of_proto(wire.finding_proto(finding)) == finding
    assert wire.finding_of_json(b'{"score": 0.25, "looked_at": ["diff"], "model": "v3"}') == Finding(
        score=0.25, looked_at=["diff"]
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b'{"score": NaN}',
        b'{"score": "high"}',
        b'{"score": 1e999}',
        b"[" * 100_000,
        b'{"score": true}',
        b"\xff",
    ],
)
def test_what_is_no_answer_is_refused_and_never_a_zero(body):
    """B4: rubbish, an object without a score, NaN."""
    with pytest.raises(InvalidInput):
        checked(wire.finding_of_json(body))


def test_a_default_protobuf_answer_is_not_valid():
    """B4: a server that answers without filling anything in says score 0, valid false."""
    from gyre.api.evaluation.v1 import evaluation_pb2 as pb

    with pytest.raises(InvalidInput, match="could not judge"):
        checked(wire.finding_of_proto(pb.EvaluateResponse()))


def test_an_answer_is_kept_inside_its_bounds():
    """Evidence over 16 KiB is replaced by its size; 64 things looked at, 500 characters each."""
    found = checked(Finding(score=1, evidence={"x": "y" * 20_000}, looked_at=["z" * 900] * 100))
    assert list(found.evidence) == ["cut"] and len(found.looked_at) == 64 and len(found.looked_at[0]) == 500


@pytest.mark.parametrize("value", [float("nan"), 10**30, "\ud800", {1, 2}, json.loads("[" * 70 + "]" * 70)], ids=str)
def test_evidence_that_could_not_be_stored_is_a_failed_try(value):
    """E: a number beyond 64 bits, half a character, deep nesting: each would stop whoever writes or reads the record."""
    with pytest.raises(InvalidInput, match="evidence"):
        checked(Finding(score=1, evidence={"x": value}))


async def test_a_server_beyond_this_machine_needs_a_token():
    """E: anybody who reaches it could read executions into it, or stop it from answering."""
    with pytest.raises(InvalidInput, match="GYRE_EVALUATOR_TOKEN"):
        await serve_async(lambda execution: 1.0, "0.0.0.0:0")


async def test_an_async_evaluator_behind_a_decorator_is_awaited():
    async def judge(execution):
        return 0.5

    servicer = _Servicer(lambda execution: judge(execution))
    assert (await servicer.Evaluate(wire.request_proto(EXECUTION, "taste", "learned"), None)).score == 0.5
