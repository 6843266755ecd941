"""The official openai and anthropic clients against a real gateway and real cells: plain, streamed, sync, async, refused (B1, B2).

The model says the alphabet and then calls a tool, whatever it is asked: its weights map each token to its successor. Replies and events are held
against the clients' own types strictly.
"""

import asyncio
import json
import os
import string
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import anthropic.types as at
import openai
import pytest
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from gyre.records import array
from tests.integration.badinput import model
from tests.support import WAIT_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALPHABET = string.ascii_lowercase
SAYS = ("\n", *ALPHABET, "<tool_call>", model.HEAD, "}}", "</tool_call>", model.END_OF_TURN)
FORCED = ("Ġ", "{", "}}")
"""After a prompt that ends with the beginning of a call, up to its arguments."""
GO: list[Any] = [{"role": "user", "content": "go"}]
SCHEMA = {"type": "object", "properties": {}}
CHAT_TOOLS: list[Any] = [{"type": "function", "function": {"name": "act", "parameters": SCHEMA}}]
RESPONSES_TOOLS: list[Any] = [{"type": "function", "name": "act", "parameters": SCHEMA, "strict": False}]
MESSAGES_TOOLS: list[Any] = [{"name": "act", "input_schema": SCHEMA}]
MESSAGE_EVENT: TypeAdapter = TypeAdapter(at.RawMessageStreamEvent)
RESPONSE_EVENT: TypeAdapter = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("speaking") / "model"
    model.make(folder)
    tokenizer, weights = AutoTokenizer.from_pretrained(folder), load_file(folder / "model.safetensors")
    says = model.successors(tokenizer, len(weights["lm_head.weight"]), SAYS)
    for token, following in pairwise(tokenizer.convert_tokens_to_ids(list(FORCED))):
        says[following, token] = model.CERTAIN
    save_file(weights | {"lm_head.weight": says}, folder / "new", metadata={"format": "pt"})
    os.replace(folder / "new", folder / "model.safetensors")
    return folder


class Clients:
    """Both makers' clients of one execution, async and sync."""

    def __init__(self, base: str, key: str) -> None:
        options: Any = {"api_key": key, "max_retries": 0, "timeout": WAIT_S}
        self.openai = openai.AsyncOpenAI(base_url=f"{base}/v1", **options)
        self.openai_sync = openai.OpenAI(base_url=f"{base}/v1", **options)
        self.anthropic = anthropic.AsyncAnthropic(base_url=base, **options)
        self.anthropic_sync = anthropic.Anthropic(base_url=base, **options)

    async def close(self) -> None:
        self.openai_sync.close()
        self.anthropic_sync.close()
        await asyncio.gather(self.openai.close(), self.anthropic.close())


@pytest.fixture
def of(driver):
    return lambda key: Clients(f"http://{driver.run.folder.endpoint('gateway')}", key)


async def begin(driver, of, index: int = 0, **limits: Any) -> Clients:
    key, _ = await driver.begin(index, output_tokens_max=60, **limits)
    return of(key)


def strictly(kind: Any, raw: Any) -> Any:
    """The reply's own text, as this type of the client's without any lenience."""
    return kind.model_validate_json(raw.http_response.content, strict=True)


def said(message: Any) -> dict:
    return message.to_dict(exclude_none=True)


async def test_chat_completions_are_the_same_plain_streamed_sync_and_async(driver, of):
    """One record: the same conversation is the same call. The tokens on record are those of the reply; usage is whole in all forms."""
    clients = await begin(driver, of)
    asking: Any = {"model": "m", "messages": GO, "tools": CHAT_TOOLS, "temperature": 1.0}
    plain = strictly(ChatCompletion, await clients.openai.chat.completions.with_raw_response.create(**asking))
    message = plain.choices[0].message
    assert (message.content, plain.choices[0].finish_reason) == (ALPHABET, "tool_calls")
    assert (message.tool_calls[0].function.name, message.tool_calls[0].function.arguments) == ("act", "{}")
    usage = plain.usage
    assert (usage.completion_tokens, usage.total_tokens) == (31, usage.prompt_tokens + 31)
    assert usage.prompt_tokens_details.cached_tokens is not None
    assert usage.completion_tokens_details.reasoning_tokens == 0

    chunks = []
    async with clients.openai.chat.completions.stream(**asking, stream_options={"include_usage": True}) as stream:
        async for event in stream:
            if event.type == "chunk":
                chunks.append(ChatCompletionChunk.model_validate(event.chunk.to_dict(), strict=True))
        streamed = await stream.get_final_completion()
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices == []
    assert chunks[-1].usage == usage and streamed.choices[0].message.content == ALPHABET
    assert streamed.choices[0].message.tool_calls[0].id == message.tool_calls[0].id

    def in_a_thread() -> str:
        parts = clients.openai_sync.chat.completions.create(**asking, stream=True)
        return "".join(part.choices[0].delta.content or "" for part in parts)

    assert await asyncio.to_thread(in_a_thread) == ALPHABET
    (record,) = await driver.recorded(1)
    assert len(array(record.output_ids, "int32")) == 31 and record.prompt_tokens == usage.prompt_tokens
    await clients.close()


async def test_the_pieces_of_a_stream_are_its_content(driver, of):
    """In all three dialects, however many tokens came at once. Three executions: none is answered from its record."""
    ones = [await begin(driver, of, index) for index in range(3)]
    chat = await ones[0].openai.chat.completions.create(model="m", messages=GO, stream=True)
    pieces = [[chunk.choices[0].delta.content async for chunk in chat if chunk.choices[0].delta.content]]
    async with ones[1].anthropic.messages.stream(model="m", max_tokens=50, messages=GO) as messages:
        pieces.append([text async for text in messages.text_stream])
    responses = await ones[2].openai.responses.create(model="m", input="go", stream=True)
    pieces.append([event.delta async for event in responses if event.type == "response.output_text.delta"])
    for one in pieces:
        assert "".join(one) == ALPHABET
    await asyncio.gather(*(one.close() for one in ones))


async def test_responses_are_the_same_plain_streamed_sync_and_async(driver, of):
    clients = await begin(driver, of)
    asking: Any = {"model": "m", "input": "go", "tools": RESPONSES_TOOLS}
    plain = strictly(Response, await clients.openai.responses.with_raw_response.create(**asking))
    assert plain.output_text == ALPHABET and [item.type for item in plain.output] == ["message", "function_call"]
    assert plain.usage.total_tokens == plain.usage.input_tokens + 31

    numbers = []
    async with clients.openai.responses.stream(**asking) as stream:
        async for event in stream:
            numbers.append(event.sequence_number)
        final = await stream.get_final_response()
    assert numbers == list(range(len(numbers))) and final.usage == plain.usage
    assert [item.type for item in final.output] == ["message", "function_call"] and final.id == plain.id

    def in_a_thread() -> list[str]:
        events = clients.openai_sync.responses.create(**asking, stream=True)
        return [RESPONSE_EVENT.validate_python(event.to_dict(), strict=True).type for event in events]

    types = await asyncio.to_thread(in_a_thread)
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    assert len(await driver.recorded(1)) == 1
    await clients.close()


async def test_messages_are_the_same_plain_streamed_sync_and_async(driver, of):
    """And what was said, sent back with the tool's result, goes on where it ended: the tokens of the first call are the second's prefix."""
    clients = await begin(driver, of)
    asking: Any = {"model": "m", "max_tokens": 50, "messages": GO, "tools": MESSAGES_TOOLS}
    plain = strictly(at.Message, await clients.anthropic.messages.with_raw_response.create(**asking))
    assert [block.type for block in plain.content] == ["text", "tool_use"] and plain.stop_reason == "tool_use"
    assert (plain.content[0].text, plain.content[1].input) == (ALPHABET, {})
    async with clients.anthropic.messages.stream(**asking) as stream:
        final = await stream.get_final_message()
    assert said(final) == said(plain)

    def in_a_thread() -> list[str]:
        events = clients.anthropic_sync.messages.create(**asking, stream=True)
        return [MESSAGE_EVENT.validate_python(event.to_dict(), strict=True).type for event in events]

    types = await asyncio.to_thread(in_a_thread)
    assert (types[0], types[-2:]) == ("message_start", ["message_delta", "message_stop"])

    result = {"type": "tool_result", "tool_use_id": plain.content[1].id, "content": "done"}
    back = [*GO, {"role": "assistant", "content": plain.content}, {"role": "user", "content": [result]}]
    counted = await clients.anthropic.messages.count_tokens(model="m", messages=back, tools=MESSAGES_TOOLS)
    after = await clients.anthropic.messages.create(**asking | {"messages": back})
    first, second = await driver.recorded(2)
    assert second.parent == first.call_id and second.parent_tokens == first.prompt_tokens + 31
    assert after.usage.cache_read_input_tokens == second.parent_tokens - 1, (
        "computed before; the last token was only sampled"
    )
    assert (
        after.usage.input_tokens + after.usage.cache_read_input_tokens == second.prompt_tokens == counted.input_tokens
    )
    await clients.close()


async def test_stop_sequences_end_a_reply_across_token_borders(driver, of):
    """What was sampled up to there is on record, and not a token more; who asks again without them gets a call of its own."""
    clients = await begin(driver, of)
    chat = await clients.openai.chat.completions.create(model="m", messages=GO, stop=["rst"])
    message = await clients.anthropic.messages.create(
        model="m", max_tokens=50, messages=GO, stop_sequences=["klm", "lm"]
    )
    async with clients.anthropic.messages.stream(
        model="m", max_tokens=50, messages=GO, stop_sequences=["klm", "lm"]
    ) as stream:
        streamed = await stream.get_final_message()
    whole = await clients.openai.chat.completions.create(model="m", messages=GO, stop=None)
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("abcdefghijklmnopq", "stop")
    assert (message.content[0].text, message.stop_reason, message.stop_sequence) == (
        "abcdefghij",
        "stop_sequence",
        "klm",
    )
    assert said(streamed) == said(message)
    assert whole.choices[0].message.content == ALPHABET
    records = await driver.recorded(3)
    assert [len(array(record.output_ids, "int32")) for record in records] == [20, 13, 31]
    assert [usage for usage in (chat.usage.completion_tokens, message.usage.output_tokens)] == [20, 13]
    await clients.close()


async def test_a_forced_tool_is_called_and_of_calls_only_one_where_one_is_wanted(driver, of):
    """The call's beginning is the prompt's end, sampled by nobody: three tokens are on record, `{`, `}}` and the call's end."""
    clients = await begin(driver, of)
    named: Any = {"type": "function", "function": {"name": "act"}}
    chat = await clients.openai.chat.completions.create(model="m", messages=GO, tools=CHAT_TOOLS, tool_choice=named)
    assert chat.choices[0].message.content is None and chat.choices[0].finish_reason == "tool_calls"
    choice: Any = {"type": "tool", "name": "act", "disable_parallel_tool_use": True}
    message = await clients.anthropic.messages.create(
        model="m", max_tokens=50, messages=GO, tools=MESSAGES_TOOLS, tool_choice=choice
    )
    assert [(block.type, block.name, block.input) for block in message.content] == [("tool_use", "act", {})]
    none = await clients.openai.chat.completions.create(model="m", messages=GO, tools=CHAT_TOOLS, tool_choice="none")
    forced, single, free = await driver.recorded(3)
    assert [len(array(record.output_ids, "int32")) for record in (forced, single, free)] == [4, 3, 31]
    assert forced.prompt_tokens > none.usage.prompt_tokens
    await clients.close()


async def test_a_stream_that_waits_for_a_cell_gives_signs_of_life(driver, of):
    """No cell serves when the headers come, so the first thing that came was a sign of life; the reply follows when one is back."""
    clients = await begin(driver, of)
    for cell in ("cell-0", "cell-1"):
        await driver.to_training(cell)
    chat, response = await asyncio.gather(
        clients.openai.chat.completions.create(model="m", messages=GO, stream=True),
        clients.openai.responses.create(model="m", input="wait", stream=True),
    )
    async with clients.anthropic.messages.stream(model="m", max_tokens=50, messages=GO) as messages:
        await driver.to_rollout("cell-0")
        assert (await messages.get_final_message()).content[0].text == ALPHABET
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in chat]) == ALPHABET
    assert [event.type async for event in response][-1] == "response.completed"
    await clients.close()


async def test_errors_are_the_clients_own_exceptions(driver, of):
    """The status, code and place that each client's programs look at."""
    clients = await begin(driver, of, turns_max=100)
    wrong = of("gyre-e30.AAAA")
    with pytest.raises(openai.AuthenticationError):
        await wrong.openai.chat.completions.create(model="m", messages=GO)
    with pytest.raises(anthropic.AuthenticationError):
        await wrong.anthropic.messages.create(model="m", max_tokens=5, messages=GO)
    with pytest.raises(openai.BadRequestError) as bad:
        await clients.openai.chat.completions.create(model="m", messages=GO, n=2)
    assert (bad.value.param, bad.value.code) == ("n", "unsupported_value")
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    with pytest.raises(anthropic.BadRequestError, match="reads text only"):
        await clients.anthropic.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": [image]}]
        )
    with pytest.raises(openai.BadRequestError, match="reads text only"):
        part: Any = {"type": "input_image", "image_url": "data:", "detail": "auto"}
        await clients.openai.responses.create(model="m", input=[{"role": "user", "content": [part]}])
    with pytest.raises(openai.BadRequestError) as long:
        await clients.openai.responses.create(model="m", input="x" * 2000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.ContentTooLargeError):
        await clients.anthropic.messages.create(
            model="m", max_tokens=5, messages=[{"role": "user", "content": "x" * 70_000}]
        )
    with pytest.raises(openai.NotFoundError):
        await clients.openai.embeddings.create(model="m", input="x")
    with pytest.raises(anthropic.NotFoundError):
        await clients.anthropic.messages.batches.list()
    listed = await clients.anthropic.models.list()
    assert [at.ModelInfo.model_validate(entry.to_dict()).id for entry in listed.data] == ["policy"]
    strictly(Model, await clients.openai.models.with_raw_response.retrieve("policy"))
    await asyncio.gather(clients.close(), wrong.close())


async def test_too_many_calls_at_once_are_told_to_come_again(driver, of):
    """429 with Retry-After in both clients' words; 32 calls of one execution may run."""
    clients = await begin(driver, of, turns_max=100)
    for cell in ("cell-0", "cell-1"):
        await driver.to_training(cell)
    calls = [
        asyncio.create_task(clients.openai.chat.completions.create(model="m", messages=[{"role": "user", "content": str(i)}]))
        for i in range(32)
    ]  # fmt: skip
    await driver.calls_waiting(32)
    with pytest.raises(openai.RateLimitError) as busy:
        await clients.openai.chat.completions.create(model="m", messages=GO)
    assert float(busy.value.response.headers["retry-after"]) > 0
    with pytest.raises(anthropic.RateLimitError) as busy:
        await clients.anthropic.messages.create(model="m", max_tokens=5, messages=GO)
    assert json.loads(busy.value.response.text)["error"]["type"] == "rate_limit_error"
    await driver.to_rollout("cell-0")
    assert {reply.choices[0].message.content for reply in await asyncio.gather(*calls)} == {ALPHABET}
    await clients.close()
