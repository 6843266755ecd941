"""Streams of all three dialects, as the official clients put them together: however the tokens come, they end in the plain reply (B1, B2)."""

import json
from collections.abc import Iterator

import anthropic.types as at
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from gyre.records import Sampling
from services.rollout.core.reply import Head, Reply
from services.rollout.core.request import ChatRequest, ToolName
from services.rollout.core.session import Model
from services.rollout.core.wires import CHAT, MESSAGES, RESPONSES, Wire, pace_of

from .builders import tool_text

CALL = "g1-e0-a1-c0"
HEAD = Head(CALL, "m", 5, 30)
ASKED = ChatRequest([], stream=True, include_usage=True, tool_names={"patch": ToolName("patch", "", True)})
WIRES = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
MESSAGE_EVENT = TypeAdapter(at.RawMessageStreamEvent)
RESPONSE_EVENT = TypeAdapter(ResponseStreamEvent)
SAID = {
    "text": "hello world",
    "nothing": "",
    "blank": " \n",
    "a call after text": "I look." + tool_text("read_file", '{"path": 1.0}'),
    "two calls": tool_text("read_file", "{}") + tool_text("patch", '{"input": "*** Begin"}'),
    "a call that is none": "so <tool_call>not json</tool_call> then",
    "reasoning": "<think>\nhm, 日本語\n</think>\n\nhello",
    "reasoning and a call": "<think>hm</think>" + tool_text("read_file", "{}"),
    "reasoning that was cut": "<think>hm, and",
}


def sampling(**changes) -> Sampling:
    return Sampling(**{"temperature": 1.0, "top_p": 1.0, "max_tokens": 64, "seed": 1, **changes})


def said(model: Model, wire: Wire, text: str, size: int, request: ChatRequest = ASKED, **changes) -> tuple[dict, list[dict]]:  # fmt: skip
    """The plain reply and the events of the same call, its tokens told `size` at a time. The opening is made late."""
    ids, how = model.template.encode(text), sampling(**changes)
    reader, stream = model.reader(how), wire.stream(HEAD, request)
    data = b""
    for at_ in range(0, len(ids), size):
        kept = reader.push(ids[at_ : at_ + size])
        data += stream.more(reader.reasoning, reader.content)
        if kept is not None:
            ids = ids[:kept]
            break
    parsed = model.read(ids, CALL, how)
    reply = Reply(CALL, "m", 5, parsed, "tool_calls" if parsed.calls else "stop", 30, len(ids), cached_tokens=20)
    return wire.body(reply, request), list(events(stream.open() + data + stream.close(reply)))


def events(data: bytes) -> Iterator[dict]:
    """Each has its type as its name, where its API names events."""
    for block in data.decode().strip().split("\n\n"):
        name, _, body = block.rpartition("data: ")
        if body != "[DONE]":
            event = json.loads(body)
            assert name in ("", f"event: {event.get('type')}\n")
            yield event


def folded(kind: str, stream: list[dict]) -> BaseModel:
    """The reply as the official client accumulates it; each event is one that it knows, strictly."""
    if kind == "chat":
        state = ChatCompletionStreamState()
        for chunk in stream:
            state.handle_chunk(ChatCompletionChunk.model_validate(chunk, strict=True))
        return state.get_final_completion()
    if kind == "messages":
        snapshot, buffers = None, {}
        for event in stream:
            known = MESSAGE_EVENT.validate_json(json.dumps(event), strict=True)
            snapshot = accumulate_event(event=known, current_snapshot=snapshot, json_bufs=buffers)
        assert known.type == "message_stop"
        return snapshot
    assert [event["sequence_number"] for event in stream] == list(range(len(stream)))
    for event in stream:
        RESPONSE_EVENT.validate_json(json.dumps(event), strict=True)
    assert stream[0]["type"] == "response.created"
    final = stream[-1]["response"]
    done = [event["item"] for event in stream if event["type"] == "response.output_item.done"]
    assert done == final["output"], "each item was said whole"
    for item in final["output"]:
        deltas = "".join(event["delta"] for event in stream if event.get("item_id") == item["id"] and "delta" in event)
        (part,) = item.get("content") or [{"text": item.get("arguments", item.get("input"))}]
        assert deltas == part["text"]
    return Response.model_validate(final, strict=True)


def same(kind: str, plain: dict, streamed: BaseModel) -> None:
    types = {"chat": ChatCompletion, "messages": at.Message, "responses": Response}
    read = types[kind].model_validate_json(json.dumps(plain), strict=True)
    ignored = {"parsed", "parsed_output", "parsed_arguments", "index"}
    assert without(streamed.to_dict(), ignored) == without(read.to_dict(), ignored)


def without(value, ignored: set[str]):
    """Less what an accumulator adds, and without what is nothing: a stream cannot know yet that it will have no content."""
    if isinstance(value, dict):
        kept = {
            name: without(item, ignored)
            for name, item in value.items()
            if name not in ignored and item not in (None, "")
        }
        return kept | ({"object": "chat.completion"} if kept.get("object") == "chat.completion.chunk" else {})
    return [without(item, ignored) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", SAID.values(), ids=SAID)
@pytest.mark.parametrize("kind", WIRES)
def test_a_stream_is_put_together_to_the_plain_reply(model, kind, text, size):
    """Usage too: 30 prompt tokens, 20 of them cached."""
    plain, stream = said(model, WIRES[kind], text, size)
    same(kind, plain, folded(kind, stream))


PIECES = [
    "a",
    " ",
    "\n",
    "<",
    "<tool_call>",
    "</tool_call>",
    '{"name": "f"}',
    "<think>",
    "</think>",
    "日",
    "ST",
    "OP",
    "S",
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(PIECES), max_size=10),
    st.integers(1, 9),
    st.sampled_from(sorted(WIRES)),
    st.booleans(),
    st.booleans(),
)
def test_so_is_any_text_with_stop_sequences_and_one_call(model, chunks, size, kind, stops, is_one_call):
    """What left early was right, wherever the output is then cut."""
    words = ["STOP", "a\n"] if stops else []
    plain, stream = said(model, WIRES[kind], "".join(chunks), size, stop_sequences=words, is_one_call=is_one_call)
    same(kind, plain, folded(kind, stream))
    assert "STOP" not in json.dumps(plain["choices"] if kind == "chat" else plain.get("content", "")) or not stops


def test_text_streams_before_a_call_and_the_call_waits_until_it_is_whole(model):
    reader, text = model.reader(sampling()), "I look." + tool_text("read_file", "{}")
    ids = model.template.encode(text)
    seen = []
    for token in ids:
        reader.push([token])
        seen.append(reader.content)
    assert seen[-1] == "I look." and seen[len(model.template.encode("I look."))] == "I look."


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_an_output_ends_with_the_token_that_completes_a_stop_sequence(model, size):
    """Across token borders, and the same however many tokens come at once: what the engine sampled beyond is no part of the call."""
    ids = model.template.encode("one two\nEND three END")
    how = sampling(stop_sequences=["\nEND", "nothing"])
    reader, kept, seen = model.reader(how), None, 0
    while kept is None:
        kept, seen = reader.push(ids[seen : seen + size]), seen + size
    assert model.template.decode(ids[:kept]) == "one two\nEND" and "END" not in model.template.decode(ids[: kept - 1])
    parsed = model.read(ids[:kept], CALL, how)
    assert (parsed.content, parsed.stop_sequence) == ("one two", "\nEND")
    assert reader.content == "one two"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_stop_sequence_before_a_character_of_several_tokens_ends_the_output_at_the_same_token(model, size):
    """The character's first bytes are told late: the end is looked for from where telling stopped."""
    ids = model.template.encode("one STOP\N{GRINNING FACE}\N{GRINNING FACE}")
    reader, kept, seen = model.reader(sampling(stop_sequences=["STOP"])), None, 0
    while kept is None:
        kept, seen = reader.push(ids[seen : seen + size]), seen + size
    assert model.template.decode(ids[:kept]) == "one STOP" and len(ids) > kept + 4


def test_the_first_stop_sequence_in_the_text_is_the_one_that_stopped(model):
    _, stream = said(model, MESSAGES, "a bc", 100, stop_sequences=["c", "b", "bc"])
    assert stream[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "b"}


def test_one_call_is_all_where_no_more_are_wanted(model):
    """`parallel_tool_calls` false: the tokens end with the first whole call, so the next prompt goes on there."""
    text = tool_text("read_file", "{}") + tool_text("run_tests", "{}")
    plain, _ = said(model, CHAT, "<tool_call>no</tool_call>" + text, 4, is_one_call=True)
    (call,) = plain["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "read_file"


@pytest.mark.parametrize("name", ["", "read_file"])
def test_a_forced_call_begins_in_the_prompt(model, name):
    """What was put there is read as part of the message, and no word of it streams as content."""
    prefix = model.prefix(ChatRequest([], force=name))
    rest = tool_text("read_file", "{}").removeprefix(prefix)
    assert rest != tool_text("read_file", "{}")
    plain, stream = said(model, CHAT, rest, 1, prefix=prefix)
    assert plain["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "read_file", "arguments": "{}"}
    same("chat", plain, folded("chat", stream))


def test_thinking_is_shown_to_who_asked_for_it(model):
    """Anthropic's clients take the first block for the text when they did not; tokens of it are counted either way."""
    text = SAID["reasoning"]
    hidden, _ = said(model, MESSAGES, text, 2, ChatRequest([], shows_reasoning=False))
    assert [block["type"] for block in hidden["content"]] == ["text"]
    shown, stream = said(model, MESSAGES, text, 2)
    assert [block["type"] for block in shown["content"]] == ["thinking", "text"] and shown["content"][0]["signature"]
    same("messages", shown, folded("messages", stream))
    until = len(model.template.encode(text.partition("</think>")[0] + "</think>"))
    assert hidden["usage"]["output_tokens_details"] == {"thinking_tokens": until}


def test_to_whom_a_cut_stream_is_the_end_nothing_is_said_before_it_is_on_record():
    """docs/harnesses.md: Claude Code gives up after the first content, Qwen Code after the headers."""
    assert [pace_of(harness, "by_harness").content for harness in ("", "codex", "claude-code", "qwen-code")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert pace_of("qwen-code", "by_harness").quiet_s > pace_of("claude-code", "by_harness").quiet_s
    assert not pace_of("codex", "recorded").content and pace_of("claude-code", "live").content
