"""Requests of Anthropic's messages API and OpenAI's responses API become the form that chat completions have (B2)."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.classify import features
from services.rollout.core.normal import Call, Message, prefix_digests
from services.rollout.core.options import BadRequest
from services.rollout.core.request import parse_request
from services.rollout.core.responses import parse_responses_request

from .test_classify import PARSERS, captured

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
ONE = [{"role": "user", "content": "hi"}]
CALL = {"id": "c1", "function": {"name": "read", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "read"}}


def messages_request(messages: list, **more):
    return parse_messages_request(json.dumps({"model": "m", "max_tokens": 9, "messages": messages, **more}).encode())


def responses_request(items, **more):
    return parse_responses_request(json.dumps({"model": "m", "input": items, **more}).encode())


def in_chat() -> tuple[list, list]:
    """The same conversation as the two below: system, task, a call, its result, a word after it."""
    arguments = '{"path": "a.py"}'
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": arguments}}
    messages = [
        {"role": "system", "content": "Mend."}, {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I read.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x = 1"}, {"role": "user", "content": "and?"},
    ]  # fmt: skip
    tools = [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA}}]
    return messages, tools


def test_one_conversation_is_the_same_in_all_three_wire_formats():
    """Same normal form, so same digests: a session's tokens do not depend on the dialect."""
    messages, tools = in_chat()
    chat = parse_request(json.dumps({"messages": messages, "tools": tools}).encode())
    anthropic = messages_request(
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}},
            ]},
            {"role": "user", "content": [
                {"type": "text", "text": "and?"},
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x = 1"}]},
            ]},
        ],
        system=[{"type": "text", "text": "Mend.", "cache_control": {"type": "ephemeral"}}],
        tools=[{"name": "read", "description": "Reads.", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "web_search"}],
    )  # fmt: skip
    responses = responses_request(
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I read."}]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"path":"a.py"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "x = 1"},
            {"role": "user", "content": "and?"},
        ],
        instructions="Mend.",
        tools=[{"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA}, {"type": "web_search"}],
    )  # fmt: skip
    assert chat.tools == anthropic.tools == responses.tools
    digests = [prefix_digests(made.tools, made.messages) for made in (chat, anthropic, responses)]
    assert digests[0] == digests[1] == digests[2] and len(digests[0]) == 6
    assert responses.messages[2].calls == (Call("c1", "read", '{"path":"a.py"}'),), "arguments as they came"


@pytest.mark.parametrize(("harness", "sent"), captured())
def test_what_a_harness_really_sends_is_taken(harness, sent):
    """Whatever a dialect adds around it: system messages in between, adaptive thinking, namespaces of tools, free-text tools."""
    _, parse = PARSERS[sent["path"].partition("?")[0]]
    made = parse(json.dumps(sent["body"]).encode())
    assert made.messages and made.messages[0].role == "system" and made.stream is bool(sent["body"].get("stream"))
    assert not {message.role for message in made.messages} - {"system", "user", "assistant", "tool"}


def test_results_of_tools_stand_before_the_text_of_their_message():
    """They answer the turn before; several results of parallel calls keep their order."""
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "x"},
        {"type": "text", "text": "y"},
    ]
    uses = [{"type": "tool_use", "id": name, "name": "f", "input": {}} for name in ("a", "b")]
    made = messages_request([{"role": "assistant", "content": uses}, {"role": "user", "content": blocks}])
    assert made.messages[1:] == [
        Message("tool", "1", tool_call_id="a"), Message("tool", "", tool_call_id="b"), Message("user", "x\ny"),
    ]  # fmt: skip


def test_tools_of_a_namespace_and_free_text_tools_become_functions():
    """Codex's agents stand in a namespace; its patches are free text. A call in the history has the same name as the tool."""
    made = responses_request(
        [
            {"type": "function_call", "call_id": "1", "namespace": "agents", "name": "spawn", "arguments": "{}"},
            {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "*** Begin"},
        ],
        tools=[
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn", "parameters": SCHEMA}]},
            {"type": "custom", "name": "patch", "format": {"type": "grammar"}},
        ],
    )  # fmt: skip
    assert [tool["function"]["name"] for tool in made.tools] == ["agents__spawn", "patch"]
    assert [(call.name, json.loads(call.arguments)) for call in made.messages[0].calls] == [
        ("agents__spawn", {}), ("patch", {"input": "*** Begin"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parse", "body", "param"),
    [
        (parse_messages_request, {"messages": ONE}, "max_tokens"),
        (parse_messages_request, {"messages": ONE, "max_tokens": 0}, "max_tokens"),
        (parse_messages_request, {"max_tokens": 5, "messages": []}, "messages"),
        (parse_messages_request, {"max_tokens": 5, "messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        (parse_messages_request, {"max_tokens": 5, "messages": ONE, "stop_sequences": [""]}, "stop_sequences[0]"),
        (parse_messages_request, {"max_tokens": 5, "messages": ONE, "tool_choice": {"type": "any"}}, "tool_choice"),
        (parse_messages_request, {"max_tokens": 5, "messages": ONE, "tools": [{}]}, "tools[0]"),
        (parse_messages_request, {"max_tokens": 5, "messages": ONE, "temperature": 1.5}, "temperature"),
        (parse_messages_request, {"max_tokens": 5, "messages": ONE, "system": 3}, "system"),
        (parse_messages_request, {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        (parse_messages_request, {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
         "messages[0].content[0].tool_use_id"),
        (parse_responses_request, {}, "input"),
        (parse_responses_request, {"input": "x", "previous_response_id": "r"}, "previous_response_id"),
        (parse_responses_request, {"input": "x", "tool_choice": "required"}, "tool_choice"),
        (parse_responses_request, {"input": "x", "max_output_tokens": True}, "max_output_tokens"),
        (parse_responses_request, {"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format"),
        (parse_responses_request, {"input": "x", "include": ["message.output_text.logprobs"]}, "top_logprobs"),
        (parse_responses_request, {"input": [{"type": "web_search_call"}]}, "input"),
        (parse_request, {"messages": [*ONE, {"role": "tool", "tool_call_id": "c1", "content": ""}]}, "messages"),
        (parse_request, {"messages": [{"role": "assistant", "tool_calls": [CALL, CALL]}]}, "messages"),
        (parse_request, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (parse_request, {"messages": ONE, "stop": ["x"] * 17}, "stop"),
        (parse_request, {"messages": ONE, "stop": 3}, "stop"),
        (parse_request, {"messages": ONE, "stream": "yes"}, "stream"),
        (parse_request, {"messages": ONE, "tool_choice": "required"}, "tool_choice"),
        (parse_request, {"messages": ONE, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        (parse_request, {"messages": ONE, "tools": [{"type": "function", "function": {"name": "f", "parameters": 7}}]},
         "tools[0].function.parameters"),
        (parse_request, {"messages": ONE, "response_format": {"type": "xml"}}, "response_format"),
        (parse_request, {"messages": ONE, "n": True}, "n"),
        (parse_responses_request, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
        (parse_responses_request, {"input": [{"type": "function_call_output", "output": ""}]}, "input[0].call_id"),
        (parse_responses_request, {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        (parse_responses_request, {"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [{}]}]}, "tools[0].tools[0]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(parse, body, param):
    with pytest.raises(BadRequest) as refused:
        parse(json.dumps(body).encode())
    assert refused.value.param == param and str(refused.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=4) | st.sampled_from(
        ["text", "user", "assistant", "tool_use", "tool_result", "message", "function_call", "namespace", "custom"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "role", "content", "text", "name", "input", "tools", "arguments", "output", "call_id"]), inner, max_size=4
    ),
    max_leaves=5,
)  # fmt: skip


blocks = st.lists(st.fixed_dictionaries({"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "input_text"])}, optional={
    "text": anything, "id": anything, "name": anything, "input": anything, "tool_use_id": anything, "content": anything,
}), max_size=3)  # fmt: skip
said = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": blocks | anything}
)
item = said | st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "function_call_output", "custom_tool_call", "reasoning", "x"])},
    optional={name: anything for name in ("role", "content", "call_id", "name", "namespace", "arguments", "input", "output")},
)  # fmt: skip
tool = st.fixed_dictionaries({"type": st.sampled_from(["function", "custom", "namespace", "web_search"]), "name": anything}, optional={
    "tools": anything, "parameters": anything, "input_schema": anything, "description": anything,
})  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.fixed_dictionaries({}, optional={
    "messages": st.lists(said, max_size=4) | anything, "input": st.lists(item, max_size=4) | anything, "max_tokens": st.just(5) | anything,
    "tools": st.lists(tool, max_size=3) | anything,
    **{name: anything for name in ("system", "instructions", "tool_choice", "temperature", "text", "stream", "model", "stop_sequences")},
}))  # fmt: skip
def test_anything_is_a_request_or_refused(body):
    """Never another exception, whatever stands where: bad input is no 500."""
    for parse in (parse_messages_request, parse_responses_request):
        try:
            made = parse(json.dumps(body).encode())
        except BadRequest:
            continue
        prefix_digests(made.tools, made.messages)
        features(made, "messages", {})
