"""Each model family behind the gateway's three APIs, plain and streamed: one conversation, one record a call, one path (A6, B1, B2)."""

import json
from typing import Any

import aiohttp
import pytest

from gyre.bus.server import free_port
from gyre.clock import ManualClock
from gyre.config import Config
from gyre.records import array
from services.rollout.core.keys import sign
from services.rollout.core.leases import Attempts
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.http import HttpGateway

from .families import TEMPLATES, model_of, written
from .test_calls import BusDouble, PoolDouble, claims
from .test_http import SECRET
from .test_messages_api import events, folded

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}}
ARGUMENTS = {"path": "a </x> [b]\n.py", "line": 12}
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GO = {"role": "user", "content": "go"}
TOOLS = {
    CHAT: {"type": "function", "function": {"name": "edit", "description": "d", "parameters": SCHEMA}},
    MESSAGES: {"name": "edit", "description": "d", "input_schema": SCHEMA},
    RESPONSES: {"type": "function", "name": "edit", "description": "d", "parameters": SCHEMA},
}


@pytest.fixture(params=TEMPLATES)
async def served(request, model):
    model = model_of(request.param, model)
    pool, bus, attempts = PoolDouble(model), BusDouble(), Attempts()
    attempts.leased("g000001-e0", 1)
    calls = ModelCalls(Config(), model, pool, bus, ManualClock(100.0), attempts)
    gateway = HttpGateway(calls, CallRoles(Config(), bus, ManualClock(100.0)), SECRET, 10_000, 200)
    await gateway.start(address := f"127.0.0.1:{free_port()}")
    key = sign(claims(turns_max=99, context_tokens_max=5000, output_tokens_max=500), SECRET)
    async with aiohttp.ClientSession(f"http://{address}", headers={"authorization": f"Bearer {key}"}) as http:
        yield request.param, http, pool, bus
    await gateway.stop()


async def test_a_call_its_result_and_an_answer_are_the_same_in_all_three_apis(served):
    """Six harnesses' worth of requests are two calls on record, the second of which goes on from the first one's tokens."""
    name, http, pool, bus = served
    texts = [written(name, [("edit", ARGUMENTS)]), "<|channel|>final<|message|>Done." if name == "gpt-oss" else "Done."]
    for path in (CHAT, MESSAGES, RESPONSES):
        for is_streamed in (False, True):
            pool.text = texts[0]
            call_id, tool, arguments, turn = _called(path, await ask(http, path, [GO], is_streamed))
            assert (tool, arguments) == ("edit", ARGUMENTS)
            pool.text = texts[1]
            said = await ask(http, path, [GO, *turn, *_result(path, call_id)], is_streamed)
            assert _words(path, said) == "Done."
    first, second = bus.records
    assert second.parent == first.call_id
    assert second.parent_tokens == first.prompt_tokens + len(array(first.output_ids, "int32"))


async def ask(
    http: aiohttp.ClientSession, path: str, messages: list[dict[str, Any]], is_streamed: bool
) -> dict[str, Any]:
    """The answer's body, as a client puts it together."""
    body = {"model": "m", "tools": [TOOLS[path]], "input" if path == RESPONSES else "messages": messages}
    body |= {"max_tokens": 500} if path == MESSAGES else {}
    async with http.post(path, json=body | {"stream": is_streamed}) as reply:
        data = await reply.read()
    assert reply.status == 200, data
    if not is_streamed:
        return json.loads(data)
    if path == MESSAGES:
        return folded(events(data))
    said = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    if path == RESPONSES:
        return said[-1]["response"]
    deltas = [chunk["choices"][0]["delta"] for chunk in said if chunk["choices"]]
    calls = [
        {key: value for key, value in call.items() if key != "index"}
        for delta in deltas
        for call in delta.get("tool_calls", ())
    ]
    message = {"role": "assistant", "content": "".join(delta.get("content") or "" for delta in deltas) or None}
    return {"choices": [{"message": message | ({"tool_calls": calls} if calls else {})}]}


def _called(path: str, body: dict[str, Any]) -> tuple[str, str, dict[str, Any], list[dict[str, Any]]]:
    """Name of the call, tool, arguments, and the turn as a harness sends it back."""
    if path == CHAT:
        message = body["choices"][0]["message"]
        (call,) = message["tool_calls"]
        return call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]), [message]
    if path == MESSAGES:
        (block,) = body["content"]
        return block["id"], block["name"], block["input"], [{"role": "assistant", "content": body["content"]}]
    (item,) = body["output"]
    return item["call_id"], item["name"], json.loads(item["arguments"]), body["output"]


def _result(path: str, call_id: str) -> list[dict[str, Any]]:
    if path == CHAT:
        return [{"role": "tool", "tool_call_id": call_id, "content": "ok"}]
    if path == MESSAGES:
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": "ok"}]}]
    return [{"type": "function_call_output", "call_id": call_id, "output": "ok"}]


def _words(path: str, body: dict[str, Any]) -> str:
    if path == CHAT:
        return body["choices"][0]["message"]["content"]
    return body["content"][0]["text"] if path == MESSAGES else body["output"][0]["content"][0]["text"]
