"""What submitters may send (E)."""

import pytest

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.errors import InvalidInput
from services.scheduler.intake import parse


def a_task(**changes) -> pb.Task:
    limits = changes.pop("limits", {})
    whole = {"wall_s": 60.0, "turns_max": 4, "context_tokens_max": 512, "output_tokens_max": 32, **limits}
    base = {
        "task_id": "t/1",
        "task_type": "repair",
        "environment": "env",
        "group_size": 8,
        "temperature": 1.0,
        "payload_json": '{"a": [1]}',
    }
    return pb.Task(limits=pb.Limits(**whole), **{**base, **changes})


def test_a_task_is_taken_with_its_defaults():
    """E: purpose, tenant and top_p may be left out."""
    spec = parse(a_task(), 0)
    assert (spec.purpose, spec.tenant, spec.top_p, spec.payload) == ("train", "default", 1.0, {"a": [1]})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task_id": ""}, "task_id"),
        ({"environment": ""}, "environment"),
        ({"environment": "a.b"}, "environment"),
        ({"task_type": "a b"}, "task_type"),
        ({"tenant": "x>"}, "tenant"),
        ({"purpose": "test"}, "purpose"),
        ({"group_size": 0}, "group_size"),
        ({"group_size": 1025}, "group_size"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 0.0}, "temperature is 0.0001 to 10000 where the task is trained"),
        ({"top_p": 1.5}, "top_p"),
        ({"payload_json": "[1]"}, "JSON object"),
        ({"payload_json": "{"}, "not JSON"),
        ({"payload_json": "[" * 100_000}, "not JSON"),
        ({"payload_json": '{"a": 1' + "0" * 30 + "}"}, "numbers of 64 bits"),
        ({"payload_json": '{"a": "\\ud800"}'}, "Unicode text"),
        ({"payload_json": '{"a": NaN}'}, "NaN is no JSON"),
        ({"payload_json": '{"a": [{"b": 1e999}]}'}, "too large a number"),
        ({"payload_json": '{"a": ' + "[" * 200 + "]" * 200 + "}"}, "nested more than 64 deep"),
        ({"payload_json": '{"a": "' + "x" * 300_000 + '"}'}, "bytes"),
        ({"limits": {"wall_s": 0.0}}, "wall_s"),
        ({"limits": {"wall_s": float("inf")}}, "wall_s"),
        ({"limits": {"turns_max": 0}}, "turns_max"),
        ({"limits": {"context_tokens_max": -1}}, "context_tokens_max"),
        ({"limits": {"output_tokens_max": 0}}, "output_tokens_max"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, said):
    """E: the error names the task and the field."""
    with pytest.raises(InvalidInput, match=said) as caught:
        parse(a_task(**changes), 7)
    assert "task 7" in str(caught.value)


def test_all_problems_of_a_task_are_told_at_once():
    """E: nobody submits four times to hear four errors."""
    with pytest.raises(InvalidInput) as caught:
        parse(a_task(group_size=0, environment=""), 0)
    assert "group_size" in str(caught.value) and "environment" in str(caught.value)


def test_an_evaluation_may_be_greedy():
    """C8: only what is trained needs a distribution that it was drawn from."""
    assert parse(a_task(temperature=0.0, purpose="evaluation"), 0).temperature == 0.0
