"""Requests whose parts are too many are refused before they keep the gateway's other sessions waiting (A6)."""

import json

import pytest

from gyre.errors import InvalidInput
from services.rollout.core.memory import Memory
from services.rollout.core.normal import TURN_PARTS_MAX
from services.rollout.core.options import CALLS_MAX
from services.rollout.core.request import TOOLS_MAX, parse_request

GO = {"role": "user", "content": "go"}
PART = {"role": "assistant", "content": "y"}


def call(index: int) -> dict:
    return {"id": f"c{index}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("has_memory", [True, False])
@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([GO, *[PART] * (TURN_PARTS_MAX + 1), GO], []),
        ([GO, PART | {"tool_calls": [call(index) for index in range(CALLS_MAX + 1)]}], []),
        ([GO], [{"type": "function", "function": {"name": f"t{index}"}} for index in range(TOOLS_MAX + 1)]),
    ],
    ids=["parts of a turn", "calls", "tools"],
)
def test_more_than_anybody_means_is_refused(messages, tools, has_memory):
    body = json.dumps({"messages": messages, "tools": tools}).encode()
    with pytest.raises(InvalidInput, match=r"more than|at most"):
        parse_request(body, Memory() if has_memory else None)


@pytest.mark.parametrize("has_memory", [True, False])
def test_as_many_parts_as_may_be_are_one_turn(has_memory):
    messages = [GO, *[PART] * TURN_PARTS_MAX, GO, *[PART] * TURN_PARTS_MAX]
    made = parse_request(json.dumps({"messages": messages}).encode(), Memory() if has_memory else None)
    assert [len(message.content) for message in made.messages] == [2, TURN_PARTS_MAX, 2, TURN_PARTS_MAX]
