"""Anthropic's messages API at the gateway: the same calls, said in its words."""

import json

from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.messages_reply import message_body
from services.rollout.core.normal import prefix_digests
from services.rollout.core.reply import Reply
from services.rollout.core.toolcalls import parse

from .builders import tool_text
from .test_calls import made  # noqa: F401  a fixture
from .test_http import served  # noqa: F401  a fixture

PATH = "/v1/messages?beta=true"
BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}]}
ASKED = parse_messages_request(json.dumps(BODY).encode())


def reply(text: str, finish: str = "stop") -> Reply:
    return Reply("g1-e0-a1-c0", "m", 5, parse(text, "g1-e0-a1-c0"), finish, 30, 7, cached_tokens=20)


def events(data: bytes) -> list[dict]:
    found = [block.split("\ndata: ") for block in data.decode().strip().split("\n\n") if not block.startswith(":")]
    assert all(name.removeprefix("event: ") == json.loads(body)["type"] for name, body in found)
    return [json.loads(body) for _, body in found]


def folded(stream: list[dict]) -> dict:
    """The message as a client puts it together: blocks from their deltas, end and usage from message_delta."""
    message, texts = {}, {}
    for event in stream:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                message["content"].append(event["content_block"])
                texts[event["index"]] = ""
            case "content_block_delta":
                texts[event["index"]] += event["delta"].get("text", "") + event["delta"].get("partial_json", "")
            case "content_block_stop":
                block, text = message["content"][event["index"]], texts[event["index"]]
                block |= {"text": text} if block["type"] == "text" else {"input": json.loads(text)}
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"]}
    assert stream[-1]["type"] == "message_stop"
    return message


def test_what_is_replied_comes_back_as_the_same_message():
    """B2: the content blocks sent back, the digests agree, so the next call continues this one's context."""
    said = reply("I look." + tool_text("read", '{"path": 1.0}'), "tool_calls")
    back = {
        **BODY,
        "messages": [*BODY["messages"], {"role": "assistant", "content": message_body(said, ASKED)["content"]}],
    }
    asked = parse_messages_request(json.dumps(back).encode())
    assert prefix_digests([], [asked.messages[0], said.parsed.message()]) == prefix_digests([], asked.messages)


def test_what_is_no_json_in_a_models_arguments_does_not_break_the_message():
    """Python reads NaN, other clients do not."""
    body = message_body(reply(tool_text("read", '{"a": NaN, "b": -Infinity}'), "tool_calls"), ASKED)
    assert body["content"][0]["input"] == {"a": "NaN", "b": "-Infinity"}


async def test_a_message_is_answered_and_recorded_like_any_call(served):  # noqa: F811
    """Plain and streamed it is one call; the key may stand in x-api-key; the role is on record."""
    http, _, bus, _ = served
    key = http.headers["authorization"].removeprefix("Bearer ")
    headers = {"authorization": "", "x-api-key": key, "user-agent": "claude-cli/2.1.197 (external, cli)"}
    system = [{"type": "text", "text": "Generate a concise, sentence-case title (3-7 words) that"}]
    async with http.post(PATH, json=BODY | {"system": system}, headers=headers) as one:
        plain = await one.json()
    async with http.post(PATH, json=BODY | {"system": system, "stream": True}, headers=headers) as other:
        assert other.content_type == "text/event-stream"
        streamed = folded(events(await other.read()))
    assert plain["content"] == streamed["content"] == [{"type": "text", "text": "hello"}]
    assert [(record.role, record.role_rule) for record in bus.records] == [("side", "claude-code/title")]


async def test_errors_have_anthropics_form(served):  # noqa: F811
    """Also of paths and keys; a prompt too long is said as Claude Code waits for it, to compact its conversation."""
    http, *_ = served
    long = [{"role": "user", "content": "hello " * 400}]
    cases = [
        (BODY | {"max_tokens": 0}, {}, 400, "invalid_request_error", "max_tokens"),
        (BODY | {"messages": long}, {}, 400, "invalid_request_error", "prompt is too long: "),
        (BODY, {"authorization": "Bearer x"}, 401, "authentication_error", "none of an execution"),
        (BODY | {"messages": [{"role": "user", "content": "x" * 20_000}]}, {}, 413, "request_too_large", "too large"),
    ]
    for body, headers, status, kind, text in cases:
        async with http.post(PATH, json=body, headers=headers) as answer:
            error = await answer.json()
            assert (answer.status, error["type"], error["error"]["type"]) == (status, "error", kind)
            assert text in error["error"]["message"]
    async with http.post("/v1/messages/batches", json={}) as answer:
        assert (answer.status, (await answer.json())["error"]["type"]) == (404, "not_found_error")


async def test_tokens_are_counted_and_somebody_is_there(served):  # noqa: F811
    """The count is the prompt's length as it would be sampled from; HEAD / is how Claude Code looks for a server."""
    http, _, bus, _ = served
    async with http.post("/v1/messages/count_tokens", json={"messages": BODY["messages"]}) as answer:
        count = (await answer.json())["input_tokens"]
    async with http.post(PATH, json=BODY):
        assert count == bus.records[0].prompt_tokens > 0
    async with http.head("/") as answer:
        assert answer.status == 200
    async with http.get("/") as answer:
        assert answer.status == 404
