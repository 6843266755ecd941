"""What clients of other makers send: bases with and without /v1, keys in either header, tools without a schema, references to what was said
(B1, B2)."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from services.rollout.core.keys import sign
from services.rollout.core.options import BadRequest
from services.rollout.core.request import parse_request
from services.rollout.gateway import patience
from tests.support import WAIT_S

from .builders import tool_text
from .test_calls import claims, made  # noqa: F401  a fixture
from .test_dialects import messages_request, responses_request
from .test_http import SECRET, served  # noqa: F401  a fixture

GO = [{"role": "user", "content": "go"}]
BODY = {"model": "m", "messages": GO, "input": "go", "max_tokens": 9}
KEY = sign(claims(turns_max=100), SECRET)


def said_in(stream: bytes) -> list[dict]:
    return [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("base", ["", "/v1", "/v1/v1"])
@pytest.mark.parametrize(
    "words", ["chat/completions", "messages", "responses", "messages/count_tokens", "responses/input_tokens"]
)
@pytest.mark.parametrize("end", ["", "/"])
async def test_a_base_url_may_end_with_v1_or_not(served, base, words, end):  # noqa: F811
    """One URL is given to all clients; what is wrong is said in the words of the API meant."""
    http, *_ = served
    async with http.post(f"{base}/{words}{end}", json=BODY) as reply:
        assert reply.status == 200
    async with http.post(f"{base}/{words}{end}", json=[]) as reply:
        assert reply.status == 400 and ("type" in await reply.json()) == words.startswith("messages")


@pytest.mark.parametrize(
    "path", ["/v1/models", "/models", "/v1/models/", "/v1/models/policy", "/v1/models/Qwen/Qwen3", "/models/a%2Fb"]
)
async def test_models_have_names_with_slashes(served, path):  # noqa: F811
    http, *_ = served
    async with http.get(path) as reply:
        assert reply.status == 200 and (await reply.json())["object"] in ("list", "model")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": f"Bearer {KEY}", "x-api-key": "from-the-environment"}, 200),
        ({"authorization": "Bearer from-the-environment", "x-api-key": KEY}, 200),
        ({"authorization": "Basic eDp5", "x-api-key": KEY}, 200),
        ({"authorization": "Bearer ", "x-api-key": " "}, 401),
        ({"authorization": KEY}, 401),
    ],
)
async def test_the_right_key_opens_whatever_else_is_sent(served, headers, status):  # noqa: F811
    http, *_ = served
    async with http.post("/v1/messages", json=BODY, headers=headers) as reply:
        assert reply.status == status


@pytest.mark.parametrize(("encoding", "status"), [("Identity", 200), ("", 200), (" identity ", 200), ("gzip", 415)])
async def test_only_packed_bodies_are_refused(served, encoding, status):  # noqa: F811
    http, *_ = served
    async with http.post("/v1/chat/completions", json=BODY, headers={"content-encoding": encoding}) as reply:
        assert reply.status == status


@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
async def test_usage_is_said_once_in_a_stream(served, options):  # noqa: F811
    """Clients add up what they find (langchain-openai): asked for, it is in the last chunk, which has no choices; else where the reply ends."""
    http, *_ = served
    async with http.post("/v1/chat/completions", json=BODY | {"stream": True, "stream_options": options}) as reply:
        chunks = said_in(await reply.read())
    used = [chunk for chunk in chunks if chunk.get("usage")]
    assert used == chunks[-1:] and used[0]["usage"]["total_tokens"] > 0
    assert bool(used[0]["choices"]) == (options != {"include_usage": True})


async def test_a_body_that_never_ends_is_given_up(served, monkeypatch):  # noqa: F811
    """408, which both makers' clients take for a reason to ask again."""
    http, *_ = served
    monkeypatch.setattr(patience, "BODY_S", 0.05)
    never = asyncio.Event()

    async def slowly():
        yield b"{"
        await never.wait()

    async with http.post("/v1/messages", data=slowly()) as reply:
        assert reply.status == 408
        assert (await reply.json())["error"]["message"].startswith("the body was not whole")


async def test_a_client_that_does_not_take_its_stream_loses_it(served, monkeypatch):  # noqa: F811
    """And nobody else anything: the call is on record, and the next one is answered."""
    http, _, bus, _ = served
    never = asyncio.Event()
    monkeypatch.setattr(patience, "TAKE_S", 0.05)
    with monkeypatch.context() as stuck:
        stuck.setattr(web.StreamResponse, "write", lambda self, data: never.wait())
        with pytest.raises(aiohttp.ClientPayloadError):
            async with http.post("/v1/messages", json=BODY | {"stream": True}) as reply:
                await reply.read()
    async with http.post("/v1/messages", json=BODY) as reply:
        assert reply.status == 200 and len(bus.records) == 1


@pytest.fixture
def sweeping(monkeypatch):
    """Before `served` begins to sweep."""
    monkeypatch.setattr(patience, "SWEEP_S", 0.05)


async def test_connections_that_ask_nothing_are_closed_and_those_between_two_calls_stay(
    sweeping,
    served,  # noqa: F811
    monkeypatch,
):
    """A harness that thinks for an hour keeps its connection; one that only opened it, or sends its headers a byte at a time, does not."""
    http, *_ = served
    async with http.get("/healthz") as reply:
        host, port = reply.url.host, reply.url.port
    asking, silent, slow = [await asyncio.open_connection(host, port) for _ in range(3)]
    for _ in range(2):
        asking[1].write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await asking[0].readline()).endswith(b"200 OK\r\n")
        await asking[0].readuntil(b"}")
        monkeypatch.setattr(patience, "HEAD_S", 0.2)  # now that the first one has asked
        slow[1].write(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-slow: ")
        for reader in (silent[0], slow[0]):
            assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
    for _, writer in (asking, silent, slow):
        writer.close()


def test_of_too_many_idle_connections_the_longest_idle_go(monkeypatch):
    class Connection:
        is_closed = False

        def force_close(self) -> None:
            self.is_closed = True

    class Request:
        def __init__(self, connection: Connection) -> None:
            self.protocol = connection

    class Server:
        connections = [Connection() for _ in range(5)]

    keeper = patience.Patience()
    keeper._idle_max = 2
    for connection in Server.connections:
        keeper.begins(Request(connection))
    for connection in Server.connections[1:]:
        keeper.ends(Request(connection))
    keeper.sweep(Server, patience.time.monotonic())
    assert [connection.is_closed for connection in Server.connections] == [False, True, True, False, False]


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_a_tool_that_takes_nothing_may_say_so_in_any_way(schema):
    """MCP servers leave `properties` out; chat templates look into it."""
    whole = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    chat = parse_request(json.dumps({"messages": GO, "tools": [tool]}).encode())
    messages = messages_request(GO, tools=[{"name": "f", "input_schema": schema}])
    responses = responses_request("go", tools=[{"type": "function", "name": "f", "parameters": schema, "strict": True}])
    assert [one.tools[0]["function"]["parameters"] for one in (chat, messages, responses)] == [whole] * 3


def test_tools_that_the_harness_runs_and_the_api_knows_are_functions():
    """Named by a type instead of a schema; tools of Anthropic's servers are left out beside them."""
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"type": "memory_20250818", "name": "memory"},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    made = messages_request(GO, tools=tools, tool_choice={"type": "tool", "name": "bash"})  # noqa: F811
    functions = [tool["function"] for tool in made.tools]
    assert [function["name"] for function in functions] == ["bash", "str_replace_based_edit_tool", "memory"]
    assert "command" in functions[0]["parameters"]["properties"] and made.force == "bash"
    assert all(function["parameters"]["properties"]["command"]["enum"] for function in functions[1:])


def in_chat(mode: str, *names: str) -> tuple[list[str], str | None]:
    """(the tools that the model is shown, the one that it must call)"""
    tools = [{"type": "function", "function": {"name": name}} for name in "fgh"]
    entries = [{"type": "function", "function": {"name": name}} for name in names]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": entries}}
    made = parse_request(json.dumps({"messages": GO, "tools": tools, "tool_choice": choice}).encode())  # noqa: F811
    return [tool["function"]["name"] for tool in made.tools], made.force


def in_responses(mode: str, *names: str) -> tuple[list[str], str | None]:
    tools = [{"type": "function", "name": name} for name in "fgh"] + [{"type": "web_search"}]
    entries = [{"type": "web_search"}, *({"type": "function", "name": name} for name in names)]
    choice = {"type": "allowed_tools", "mode": mode, "tools": entries}
    made = responses_request("go", tools=tools, tool_choice=choice)  # noqa: F811
    return [tool["function"]["name"] for tool in made.tools], made.force


@pytest.mark.parametrize("ask_for", [in_chat, in_responses])
def test_of_the_tools_only_those_that_are_allowed_are_shown(ask_for):
    assert ask_for("auto", "h", "f") == (["f", "h"], None)
    assert ask_for("auto") == ([], None)
    assert ask_for("required", "f", "g") == (["f", "g"], "")
    assert ask_for("required", "g") == (["g"], "g")
    for wrong in (("auto", "x"), ("required",), ("never", "f")):
        with pytest.raises(BadRequest) as error:
            ask_for(*wrong)
        assert error.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("parse", "body", "param"),
    [
        (messages_request, {"tools": [{"type": "computer_20250124", "name": "computer"}]}, "tools[0]"),
        (messages_request, {"tools": [{"type": 7, "name": "x"}]}, "tools[0].type"),
        (messages_request, {"tools": [{"type": "bash_20250124"}]}, "tools[0]"),
        (responses_request, {"tools": [{"type": "local_shell"}]}, "tools[0]"),
        (responses_request, {"tools": [{"type": "apply_patch"}]}, "tools[0]"),
        (responses_request, {"prompt": {"id": "pmpt_1"}}, "prompt"),
    ],
)
def test_what_would_silently_do_nothing_is_refused(parse, body, param):
    with pytest.raises(BadRequest) as error:
        parse(GO, **body)
    assert error.value.param == param


@pytest.mark.parametrize("name", ["function_call", "audio"])
def test_old_and_spoken_parts_of_a_turn_are_refused(name):
    """They would be missing from the history that the model sees."""
    turn = {"role": "assistant", "content": None, name: {"name": "f", "arguments": "{}", "id": "x"}}
    with pytest.raises(BadRequest) as error:
        parse_request(json.dumps({"messages": [*GO, turn, *GO]}).encode())
    assert error.value.param == f"messages[1].{name}"


def test_documents_and_search_results_that_are_text_are_read():
    """Nested as deep as a block of content may be; a picture in one is refused with its place."""
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    blocks = [
        {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "d\ud800"}},
        {"type": "document", "title": None, "source": {"type": "content", "content": texts}},
        {"type": "search_result", "source": "http://s", "title": "S", "content": texts},
    ]
    assert (
        messages_request([{"role": "user", "content": blocks}]).messages[0].content == "T\nd?\na\nb\nS\nhttp://s\na\nb"
    )
    picture = {"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": {}}]}}
    with pytest.raises(BadRequest) as error:
        messages_request([{"role": "user", "content": [picture]}])
    assert error.value.param == "messages[0].content[0].source.content[0]"


async def test_items_of_a_reply_are_known_by_their_ids_in_the_execution_that_was_given_them(served):  # noqa: F811
    """The Vercel AI SDK sends them so by default; the next call goes on from the recorded tokens, also after a restart. Nobody else knows them."""
    http, pool, bus, calls = served
    pool.text = "<think>hm</think>I look.\n" + tool_text("read_file", '{"path":  "a"}')
    tools = [{"type": "function", "name": "read_file"}]
    async with http.post("/v1/responses", json={"input": GO, "tools": tools}) as reply:
        items = (await reply.json())["output"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    back = [
        {"type": "item_reference", "id": items[0]["id"]},
        {"id": items[1]["id"]},
        {"type": "item_reference", "id": items[2]["id"]},
    ]
    result = {"type": "function_call_output", "call_id": items[2]["call_id"], "output": "1"}
    pool.text = "done"
    for _ in range(2):
        async with http.post("/v1/responses", json={"input": [*GO, *back, result], "tools": tools}) as reply:
            assert reply.status == 200, await reply.text()
        calls.restore("g000001-e0-a1", bus.records)
    first, second = bus.records
    assert second.parent == first.call_id and second.parent_tokens == first.prompt_tokens + len(first.output_ids) // 4
    for wrong in (*(item["id"] + "x" for item in items), "msg_", "", None, 7):
        async with http.post("/v1/responses", json={"input": [*GO, {"type": "item_reference", "id": wrong}]}) as reply:
            assert reply.status == 400 and (await reply.json())["error"]["param"] == "input[1].id"
    async with http.post("/v1/responses", json={"input": [*GO, back[1], back[1]]}) as reply:
        assert reply.status == 400 and (await reply.json())["error"]["param"] == "input[2].id"
    with pytest.raises(BadRequest):
        responses_request([*GO, back[0]])
