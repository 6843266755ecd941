"""A reply that goes on from an assistant's words: the harness's own, or those of a reply that was cut (B1, B2)."""

import pytest

from gyre.records import array

from .test_calls import made  # noqa: F401  a fixture
from .test_http import served  # noqa: F401  a fixture
from .test_messages_api import events, folded

GO = [{"role": "user", "content": "go"}]
BODY = {"model": "m", "messages": GO, "max_tokens": 9}


async def test_a_reply_goes_on_from_the_assistants_last_words(served):  # noqa: F811
    """Anthropic's prefill, plain and streamed: the words are the prompt's end, the answer is what comes after them, and both together are the turn
    that the next call goes on from."""
    http, pool, bus, _ = served
    pool.text = " there, I am."
    begun = [*GO, {"role": "assistant", "content": "Hello"}]
    async with http.post("/v1/messages", json=BODY | {"messages": begun}) as reply:
        plain = await reply.json()
    assert plain["content"] == [{"type": "text", "text": " there, I am."}]
    async with http.post("/v1/messages", json=BODY | {"messages": begun, "stream": True}) as reply:
        assert folded(events(await reply.read()))["content"] == plain["content"]
    (first,) = bus.records
    prompt = pool.model.template.decode(array(first.prompt_delta, "int32").tolist())
    assert prompt.endswith("assistant\nHello")
    for turn in (
        [{"role": "assistant", "content": "Hello there, I am."}],
        [begun[-1], {"role": "assistant", "content": " there, I am."}],
    ):
        await ask(http, [*GO, *turn, {"role": "user", "content": "on"}])
    second = bus.records[-1]
    assert len(bus.records) == 2 and second.parent == first.call_id
    assert second.parent_tokens == first.prompt_tokens + len(first.output_ids) // 4


async def test_a_reply_that_was_cut_goes_on_from_its_own_tokens(served):  # noqa: F811
    """rllm#272: what was sampled stands in the next prompt as it was sampled, in this order of tokens."""
    http, pool, bus, _ = served
    pool.text, pool.finish = "hel", "length"
    await ask(http, GO)
    pool.text, pool.finish = "lo", "stop"
    assert (await ask(http, [*GO, {"role": "assistant", "content": "hel"}]))["content"][0]["text"] == "lo"
    first, second = bus.records
    assert (second.parent, second.parent_tokens) == (first.call_id, second.prompt_tokens)
    assert second.prompt_tokens == first.prompt_tokens + len(first.output_ids) // 4
    await ask(http, [*GO, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "on"}])
    assert bus.records[-1].parent == second.call_id


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("Hello ", {}), ("Hello\n", {}), ("<think>", {}), ("<tool_call>", {}),
        ("x", {"tools": [{"name": "f"}], "tool_choice": {"type": "any"}}),
    ],
)  # fmt: skip
async def test_words_that_a_reply_cannot_go_on_from_are_refused_every_time(served, words, more):  # noqa: F811
    """White space as Anthropic does; also when the session remembers the body."""
    http, *_ = served
    for _ in range(2):
        said = [*GO, {"role": "assistant", "content": words}]
        async with http.post("/v1/messages", json=BODY | {"messages": said} | more) as reply:
            assert reply.status == 400 and (await reply.json())["error"]["type"] == "invalid_request_error"
        assert await ask(http, GO)


async def ask(http, messages: list) -> dict:
    async with http.post("/v1/messages", json=BODY | {"messages": messages}) as reply:
        assert reply.status == 200, await reply.text()
        return await reply.json()
