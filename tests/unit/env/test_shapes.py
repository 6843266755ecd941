"""Tools and results in the shapes of MCP and Gymnasium, read as ours."""

import pytest

from gyre.env import StepResult
from gyre.env.shapes import block_text, openai_tools, step_result
from gyre.errors import InvalidInput

MCP_TOOL = {
    "name": "add",
    "description": "Adds.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}}},
}


def test_an_mcp_tool_and_an_openai_tool_are_the_same_tool():
    """`inputSchema` is `parameters`; what is in OpenAI's form already stays as it is."""
    (tool,) = openai_tools([MCP_TOOL])
    function = {"name": "add", "description": "Adds.", "parameters": MCP_TOOL["inputSchema"]}
    assert tool == {"type": "function", "function": function}
    assert openai_tools([tool]) == [tool]


@pytest.mark.parametrize("tools", [{"name": "add"}, ["add"], [{"function": {}}], [{"name": 3, "inputSchema": {}}]])
def test_what_describes_no_tool_is_refused(tools):
    with pytest.raises(InvalidInput, match="OpenAI's function format or in MCP's"):
        openai_tools(tools)


def test_a_five_tuple_is_a_step_that_was_terminated_or_truncated():
    """Gymnasium: terminated has no value beyond it, truncated has; where both are said the world's own end counts."""
    assert step_result(({"at": 3, "left": 2}, 0.5, True, False, {})) == StepResult(
        content="at: 3\nleft: 2", done=True, reward=0.5
    )
    assert step_result(("far", 1, False, True, {})) == StepResult(content="far", truncated=True, reward=1.0)
    both = step_result(("far", 1, True, True, {}))
    assert (both.done, both.truncated) == (True, False)


@pytest.mark.parametrize("said", [("x", "much", True, False, {}), ("x", float("nan"), True, False, {})])
def test_a_reward_that_is_no_number_is_refused(said):
    with pytest.raises(InvalidInput, match="reward must be a number"):
        step_result(said)


def test_an_mcp_result_is_the_text_of_its_blocks():
    """A chat's tool answers in text: what is none is named with its kind and size."""
    blocks = [
        {"type": "text", "text": "two"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}},
        {"type": "resource_link", "uri": "file:///y", "name": "y"},
    ]
    said = step_result({"content": blocks, "isError": True})
    lines = ["two", "[image image/png: 4 characters of base64, not shown]", "inside", "[y: file:///y]"]
    assert said == StepResult(content="\n".join(lines), error=True)
    assert step_result(StepResult(content=blocks[:1], done=True)) == StepResult(content="two", done=True)


def test_a_block_of_no_known_type_is_refused():
    with pytest.raises(InvalidInput, match="must have a type of text, image"):
        block_text([{"type": "smell"}])


@pytest.mark.parametrize("said", ["done", None, 3, StepResult(content=b"x"), ("a", "b")])
def test_what_is_no_result_is_refused_by_its_kind(said):
    with pytest.raises(InvalidInput, match="no StepResult with text"):
        step_result(said)
