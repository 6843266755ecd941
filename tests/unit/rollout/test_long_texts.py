"""Megabytes of new text: read beside the event loop, or refused where they cannot fit at all (A6, B1)."""

import asyncio
import threading

import pytest

from gyre.clock import ManualClock
from gyre.config import Config, RolloutConfig
from gyre.errors import Overloaded
from services.rollout.core.leases import Attempts
from services.rollout.core.options import BadRequest
from services.rollout.core.pieces import chars_max
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.longtexts import LONG_CHARS
from services.rollout.gateway.running import ExecutionOver
from tests.support import until

from .builders import reply_message, request, tool_message, tool_text
from .test_calls import MAIN, START, BusDouble, PoolDouble, claims, made  # noqa: F401  a fixture

LONG = [{"role": "user", "content": "hello world " * 6000}]
ROOMY = claims(context_tokens_max=1 << 17, concurrency_max=2, turns_max=10)


@pytest.fixture
def slow(model, monkeypatch):
    """Long texts take until they are let through: (calls, pool, let through)."""
    pool, attempts = PoolDouble(model), Attempts()
    attempts.leased("g000001-e0", 1)
    config = Config(rollout=RolloutConfig(context_max=1 << 17))
    calls = ModelCalls(config, model, pool, BusDouble(), ManualClock(100.0), attempts)
    through, begun, real = threading.Event(), threading.Event(), calls.model.template.encode_long

    def read(text: str) -> list[int]:
        begun.set()
        return through.wait(60) and real(text)

    monkeypatch.setattr(calls.model.template, "encode_long", read)
    yield calls, pool, through, begun
    through.set()


async def test_others_are_served_while_a_long_text_is_read_and_it_is_one_of_its_executions_calls(slow):
    calls, _, through, begun = slow
    assert len(LONG[0]["content"]) > LONG_CHARS
    reading = asyncio.create_task(calls.soon(ROOMY, request(LONG), MAIN))
    counting = asyncio.create_task(calls.count_tokens(ROOMY, request([*LONG, *LONG])))
    await until(lambda: begun.is_set() and calls._open["g000001-e0-a1"].preparing == 2)
    with pytest.raises(Overloaded, match="at most 2 may"):
        await calls.soon(ROOMY, request(START), MAIN)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    with pytest.raises(Overloaded):  # its thread is not free
        await calls.soon(ROOMY, request(START), MAIN)
    assert await calls.count_tokens(ROOMY, request(START)) > 0, "a short text is counted at once"
    through.set()
    assert await counting > 20_000
    await until(lambda: not calls._open["g000001-e0-a1"].preparing)
    assert (await (await calls.soon(ROOMY, request(START), MAIN)).done).parsed.content == "hello"


async def test_a_long_text_has_the_ids_it_has_at_once_also_behind_recorded_tokens(slow):
    calls, pool, through, _ = slow
    through.set()
    pool.text = tool_text("read_file", "{}")
    first = await (await calls.soon(ROOMY, request(LONG), MAIN)).done
    back = [*LONG, reply_message(first.parsed), tool_message(first.parsed, 0, "found " * 12_000)]
    await (await calls.soon(ROOMY, request(back), MAIN)).done
    made_ = request(back)
    assert pool.seen[1].prompt_ids.tolist() == calls.model.renderer.whole(made_.messages, made_.tools)


async def test_what_cannot_fit_is_refused_without_being_read(slow):
    """Characters alone say so: each token stands for few."""
    calls, *_ = slow
    small = claims(context_tokens_max=1000)
    most = calls.model.template.token_chars_max
    with pytest.raises(BadRequest, match="prompt is too long") as error:
        await calls.soon(small, large := request([{"role": "user", "content": "x" * (1000 * most + LONG_CHARS)}]), MAIN)
    assert error.value.error_code == "context_length_exceeded"
    with pytest.raises(BadRequest, match="prompt is too long"):
        await calls.count_tokens(small, large)


async def test_many_long_texts_of_one_execution_are_read_one_after_the_other_and_others_pass_them(model, monkeypatch):
    """Each is let through by name: the other execution's, sent last, while the first one's are stuck."""
    attempts, config = Attempts(), Config(rollout=RolloutConfig(context_max=1 << 17))
    for execution in ("g000001-e0", "g000001-e1"):
        attempts.leased(execution, 1)
    calls = ModelCalls(config, model, PoolDouble(model), BusDouble(), ManualClock(100.0), attempts)
    many, other = (
        claims(context_tokens_max=1 << 17, concurrency_max=32, execution_id=name)
        for name in ("g000001-e0", "g000001-e1")
    )
    begun, through, real = [], threading.Event(), calls.model.template.encode_long

    def read(text: str) -> list[int]:
        begun.append(text)
        return real(text) if "other" in text else through.wait(60) and real(text)

    monkeypatch.setattr(calls.model.template, "encode_long", read)

    def count(who, word: str) -> asyncio.Task:
        return asyncio.create_task(
            calls.count_tokens(who, request([{"role": "user", "content": word + " hello" * 12_000}]))
        )

    counting = [count(many, f"text {number}") for number in range(6)]
    try:
        await until(lambda: begun)
        assert await asyncio.wait_for(count(other, "other"), 30) > 1000
        assert len(begun) == 2
        counting[3].cancel()
    finally:
        through.set()
    counted = await asyncio.gather(*counting, return_exceptions=True)
    assert isinstance(counted.pop(3), asyncio.CancelledError) and all(tokens > 1000 for tokens in counted)
    await until(lambda: not calls._open["g000001-e0-a1"].preparing)
    assert len(begun) == 6


async def test_a_key_whose_attempt_is_over_counts_no_tokens(made):  # noqa: F811
    calls, *_, attempts = made
    attempts.leased("g000001-e0", 2)
    with pytest.raises(ExecutionOver):
        await calls.count_tokens(claims(), request(START))


BYTES = {chr(0x100 + place): place for place in range(256)}
CONFIG = {
    "model": {"type": "BPE", "dropout": None, "vocab": BYTES | {"abcd": 256}},
    "pre_tokenizer": {"type": "ByteLevel"}, "normalizer": None, "truncation": None, "padding": None,
    "added_tokens": [{"content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({}, 7),
        ({"normalizer": {"type": "NFC"}}, 28),
        ({"normalizer": {"type": "Strip"}}, None),
        ({"model": CONFIG["model"] | {"vocab": {"abcd": 0}}}, None),
        ({"pre_tokenizer": {"type": "Metaspace"}}, None),
        ({"pre_tokenizer": None}, None),
        ({"added_tokens": [CONFIG["added_tokens"][0] | {"lstrip": True}]}, None),
    ],
)
def test_how_many_characters_a_token_stands_for_is_said_only_where_it_is_certain(changes, most):
    """A tokenizer that leaves anything out may make one token of any text."""
    assert chars_max(CONFIG | changes) == most
