"""OpenAI's responses API at the gateway, as its official client reads it."""

import json
from dataclasses import replace

import openai
import pytest

from services.rollout.core.normal import prefix_digests
from services.rollout.core.reply import Reply
from services.rollout.core.request import tools_of
from services.rollout.core.responses import parse_responses_request
from services.rollout.core.responses_reply import response_body
from services.rollout.core.toolcalls import parse
from services.rollout.gateway import http as http_module

from .builders import Harness, tool_text
from .test_calls import made  # noqa: F401  a fixture
from .test_http import served  # noqa: F401  a fixture

TOOLS = [
    {"type": "function", "name": "read", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
    {"type": "namespace", "name": "agents", "description": "", "tools": [{"type": "function", "name": "spawn", "parameters": {}}]},
]  # fmt: skip
CODEX = {
    "user-agent": "codex_exec/0.171.0 (Debian)",
    "x-codex-turn-metadata": '{"request_kind":"turn","thread_source":"user"}',
}


def asked(items: list | str = "go"):
    return parse_responses_request(json.dumps({"input": items, "tools": TOOLS}).encode())


def reply(text: str, finish: str = "stop") -> Reply:
    return Reply("g1-e0-a1-c0", "m", 5, parse(text, "g1-e0-a1-c0"), finish, 30, 7, cached_tokens=20)


SAID = [
    ("hello", "stop", ["message"]),
    ("hel", "length", ["message"]),
    ("<think>hm</think>", "stop", ["message"]),
    ("I look." + tool_text("read", '{"path": 1.0}'), "tool_calls", ["message", "function_call"]),
    (tool_text("patch", '{"input": "*** Begin"}') + tool_text("agents__spawn", "{}"), "tool_calls", ["custom_tool_call", "function_call"]),
]  # fmt: skip


@pytest.mark.parametrize("arguments", ['{"input": "abc"}', '{"input": "abc", "why": "x"}', '{"patch": "abc"}', '{"input": 5}', "{}"])  # fmt: skip
def test_a_free_text_call_that_comes_back_verbatim_is_the_recorded_one(model, arguments):
    """B2: its text alone does not say all that the model wrote; its name does."""
    harness, tools = Harness(model), tools_of([{"type": "function", "function": {"name": "patch"}}])
    parsed = harness.call([{"role": "user", "content": "go"}], tool_text("patch", arguments), tools=tools)
    (item,) = response_body(Reply("c", "m", 5, parsed, "tool_calls", 3, 7), asked())["output"]
    assert item["type"] == "custom_tool_call"
    result = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "r"}
    for text, is_own in ((item["input"], True), ("edited", False)):
        body = json.dumps({"input": [{"role": "user", "content": "go"}, item | {"input": text}, result]})
        back = replace(parse_responses_request(body.encode(), harness.session.memory), tools=tools)
        assert harness.goes_on(harness.session.prompt(back, model)) == is_own


@pytest.mark.parametrize(("text", "finish", "kinds"), SAID)
def test_what_is_replied_comes_back_as_the_same_turn(text, finish, kinds):
    """B2: names with namespaces and free text there and back; the next call continues this one's context."""
    said = reply(text, finish)
    back = asked([{"role": "user", "content": "go"}, *response_body(said, asked())["output"]])
    assert prefix_digests([], [back.messages[0], said.parsed.message()]) == prefix_digests([], back.messages)


def test_calls_are_said_as_the_harness_knows_its_tools():
    """The model sees functions; Codex is told the namespace, and the text of a free-text tool."""
    patch, spawn = response_body(reply(SAID[-1][0], "tool_calls"), asked())["output"]
    assert (patch["name"], patch["input"]) == ("patch", "*** Begin")
    assert (spawn["namespace"], spawn["name"], spawn["arguments"]) == ("agents", "spawn", "{}")


async def test_the_official_client_runs_against_the_gateway(served, monkeypatch):  # noqa: F811
    """Plain, streamed with keep-alives, and refused; one record for the plain and the streamed form, with Codex's role."""
    http, _, bus, _ = served
    monkeypatch.setattr(http_module, "KEEP_ALIVE_S", 0.01)
    key = http.headers["authorization"].removeprefix("Bearer ")
    async with openai.AsyncOpenAI(
        base_url=str(http._base_url).rstrip("/") + "/v1", api_key=key, max_retries=0
    ) as client:
        asking = {"model": "m", "input": "go", "instructions": "Mend.", "extra_headers": CODEX}
        plain = await client.responses.create(**asking)
        assert plain.output_text == "hello" and plain.status == "completed"
        types, text = [], ""
        async for event in await client.responses.create(**asking, stream=True):
            types.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
        assert text == "hello" and types[-1] == "response.completed"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="m", input="hello " * 400)
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="m", input="go", previous_response_id="resp_1")
        assert refused.value.param == "previous_response_id"
    assert [(record.role, record.role_rule) for record in bus.records] == [("main", "codex/main")]
