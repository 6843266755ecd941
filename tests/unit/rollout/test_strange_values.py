"""Values in a model's tool calls that not every client's JSON has: each reply is JSON all the same, and comes back as the same message (B1, B2)."""

import json
import math
import re

import pytest

from services.rollout.core.normal import next_digest
from services.rollout.core.reply import Head, Reply
from services.rollout.core.toolcalls import parse
from services.rollout.core.wires import CHAT, MESSAGES, RESPONSES

VALUES = [
    "1e999", "-1E+400", "[1.5, 1e999]", "NaN", "[-Infinity, Infinity]", r'"\ud800 a \udfff"', r'{"\udc00": 1}', r'"\ud83d\ude00"', "1" * 4000,
    "1" * 5000, "1e-999", "0.1", "-0.0", "1.0", '"a\\u0000b"',
]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"x": {}, "input": {"type": ["number", "object", "array"]}}}
BODIES = {
    "chat": {"messages": [{"role": "user", "content": "go"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
    "messages": {"messages": [{"role": "user", "content": "go"}], "max_tokens": 9, "tools": [{"name": "f", "input_schema": SCHEMA}]},
    "responses": {"input": [{"role": "user", "content": "go"}], "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
}  # fmt: skip


def texts(value: str) -> list[str]:
    """A call in each form that models write."""
    inside = f'{{"x": 1, "input": {value}}}'
    return [
        f'<tool_call>{{"name": "f", "arguments": {inside}}}</tool_call>',
        f'<tool_call>{{"name": "f", "arguments": {json.dumps(inside)}}}</tool_call>',
        f'<tool_call>{{"name": "f", "arguments": {inside}}}}}</tool_call>',
        f"<tool_call><function=f><parameter=x>\n1\n</parameter><parameter=input>\n{value}\n</parameter></function></tool_call>",
    ]


def strict(data: bytes | str) -> dict:
    """As the strictest of clients reads it: RFC 8259, numbers that are some, whole characters."""

    def number(text: str) -> float:
        assert math.isfinite(float(text)), text
        return float(text)

    value = json.loads(data, parse_constant=pytest.fail, parse_float=number)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def sent_back(wire, body: dict, said: dict) -> dict:
    on = {"role": "user", "content": "on"}
    match wire.endpoint:
        case "chat":
            return body | {"messages": [*body["messages"], said["choices"][0]["message"], on]}
        case "messages":
            return body | {"messages": [*body["messages"], {"role": "assistant", "content": said["content"]}, on]}
    return body | {"input": [*body["input"], *said["output"], on]}


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, RESPONSES], ids=lambda wire: wire.endpoint)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_reply_is_json_whatever_its_calls_hold_and_comes_back_as_the_same_message(wire, value):
    body = BODIES[wire.endpoint]
    asked = wire.parse(json.dumps(body).encode(), None)
    for text in texts(value):
        parsed = parse(text, "g1-e0-a1-c0", schemas={"f": SCHEMA["properties"]})
        reply = Reply("g1-e0-a1-c0", "m", 5, parsed, "tool_calls" if parsed.calls else "stop", 30, 7)
        for call in parsed.calls:
            call.arguments.encode()
            assert isinstance(json.loads(call.arguments, parse_constant=pytest.fail), dict)
        said = strict(json.dumps(wire.body(reply, asked)))
        stream = wire.stream(Head("g1-e0-a1-c0", "m", 5, 30), asked)
        for line in re.findall(rb"^data: (\{.*)$", stream.open() + stream.close(reply), re.MULTILINE):
            strict(line)
        back = wire.parse(json.dumps(sent_back(wire, body, said)).encode(), None)
        assert next_digest(b"", back.messages[-2]) == next_digest(b"", parsed.message())


def test_free_text_of_half_characters_is_text():
    asked = RESPONSES.parse(json.dumps({"input": "go", "tools": [{"type": "custom", "name": "f"}]}).encode(), None)
    parsed = parse(texts(r'"a \ud800"')[0].replace('"x": 1, ', ""), "c")
    body = RESPONSES.body(Reply("c", "m", 5, parsed, "tool_calls", 30, 7), asked)
    assert strict(json.dumps(body))["output"][0]["input"] == "a ?"


@pytest.mark.parametrize("name", [r"\ud800", r"a\udfffb"])
def test_a_name_of_half_characters_is_none(name):
    text = f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'
    assert (parse(text, "c").calls, parse(text, "c").content) == ((), text)
