"""Responses that go on from an earlier one by its id: the same call as if all had been sent (B1, B2)."""

import json
import random
from functools import partial

import openai
import pytest

from services.rollout.core.earlier import Earlier
from services.rollout.core.keys import sign
from services.rollout.core.options import BadRequest
from services.rollout.core.reply import Reply
from services.rollout.core.responses import parse_responses_request
from services.rollout.core.responses_reply import response_body
from services.rollout.gateway import calls as calls_module

from .builders import Harness, tool_text
from .test_calls import claims, made  # noqa: F401  a fixture
from .test_http import SECRET, served  # noqa: F401  a fixture

KEY = sign(claims(turns_max=50, context_tokens_max=4000), SECRET)
TOOLS = [
    {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}},
    {"type": "custom", "name": "patch", "format": {"type": "text"}},
]


@pytest.fixture
async def client(served):  # noqa: F811
    """(the official client, doubles of pool and bus, calls)"""
    http, pool, bus, calls = served
    async with openai.AsyncOpenAI(base_url=f"{http._base_url.origin()}/v1", api_key=KEY, max_retries=0) as official:
        yield official, pool, bus, calls


def items_of(response) -> list[dict]:
    return [item.model_dump(exclude_none=True) for item in response.output]


async def chain(create, pool) -> tuple[list, list]:
    """Three responses, each by the id of the one before, and the last one's whole input."""
    first = await create(input="a")
    pool.text = "I look." + tool_text("read", '{"path": "x"}') + tool_text("patch", '{"input": "*** Begin"}')
    second = await create(input=[{"role": "user", "content": "b"}], previous_response_id=first.id)
    pool.text = "done"
    results = [
        {"type": "function_call_output", "call_id": second.output[1].call_id, "output": "read"},
        {"type": "custom_tool_call_output", "call_id": second.output[2].call_id, "output": "patched"},
    ]
    third = await create(input=results, previous_response_id=second.id)
    whole = [
        {"role": "user", "content": "a"},
        *items_of(first),
        {"role": "user", "content": "b"},
        *items_of(second),
        *results,
    ]
    return [first, second, third], whole


async def test_sent_whole_and_sent_by_id_it_is_the_same_call(client):
    """Equal histories never fork: the one is a retry of the other, whichever came first, and each call goes on from all tokens of the one before."""
    official, pool, bus, _ = client
    create = partial(official.responses.create, model="m", instructions="Mend.", tools=TOOLS)
    said, whole = await chain(create, pool)
    assert [record.parent for record in bus.records] == ["", bus.records[0].call_id, bus.records[1].call_id]
    assert [one.previous_response_id for one in said] == [None, said[0].id, said[1].id] and said[2].store
    again = await create(input=whole)
    assert (again.id, again.previous_response_id, len(bus.records)) == (said[2].id, None, 3)
    pool.text = "more"
    more = await create(input=[*whole, *items_of(again), {"role": "user", "content": "c"}])
    by_id = await create(input="c", previous_response_id=said[2].id)
    assert more.id == by_id.id and len(bus.records) == 4
    assert bus.records[3].parent_tokens == bus.records[2].prompt_tokens + len(bus.records[2].output_ids) // 4


async def test_a_retry_is_answered_from_the_record_and_branches_are_calls_of_their_own(client):
    official, _, bus, _ = client
    create = partial(official.responses.create, model="m")
    first = await create(input="a")
    one, again, other = [await create(input=text, previous_response_id=first.id) for text in ("b", "b", "c")]
    assert one.id == again.id != other.id and len(bus.records) == 3
    begun = bus.records[0].prompt_tokens + len(bus.records[0].output_ids) // 4
    assert all(record.parent_tokens >= begun for record in bus.records[1:]), "all of the first one's tokens"
    later = await create(input="d", previous_response_id=one.id)
    whole = [
        {"role": "user", "content": "a"},
        *items_of(first),
        {"role": "user", "content": "b"},
        *items_of(one),
        {"role": "user", "content": "d"},
    ]
    assert (await create(input=whole)).id == later.id


async def test_streams_and_counts_go_on_as_well(client):
    official, _, bus, _ = client
    first = [event async for event in await official.responses.create(model="m", input="a", stream=True)]
    name = first[-1].response.id
    events = [
        event
        async for event in await official.responses.create(model="m", input="b", previous_response_id=name, stream=True)
    ]
    assert events[0].response.previous_response_id == name and events[-1].type == "response.completed"
    assert bus.records[1].parent == bus.records[0].call_id
    counted = await official.responses.input_tokens.count(model="m", input="b", previous_response_id=name)
    assert counted.input_tokens == bus.records[1].prompt_tokens
    empty = await official.responses.create(model="m", previous_response_id=name)
    assert empty.id not in (name, events[-1].response.id), "a new turn begins"


async def test_instructions_and_forms_do_not_carry_over(client):
    official, pool, _, _ = client
    create = partial(official.responses.create, model="m")
    form = {"format": {"type": "json_object"}}
    first = await create(
        input=[{"role": "system", "content": "Stay."}, {"role": "user", "content": "a"}],
        instructions="Mend.",
        text=form,
    )
    await create(input="b", previous_response_id=first.id, instructions="Rather not.")
    await create(input="b", previous_response_id=first.id)
    said, anew, bare = (pool.model.template.decode(work.prompt_ids.tolist()) for work in pool.seen)
    assert "Mend." in said and "JSON" in said and "Mend." not in anew + bare and "JSON" not in anew + bare
    assert "Rather not." in anew and "Rather not." not in bare and "Stay." in anew and "Stay." in bare


async def test_what_is_not_known_is_said_so_in_openais_words(client):
    """Of nobody, of another execution, not to be stored, of this session before its gateway died: sent whole it is the same call."""
    official, _, bus, calls = client
    create = partial(official.responses.create, model="m")
    calls._attempts.leased("g000002-e0", 1)
    key = sign(claims(execution_id="g000002-e0", group_id="g000002"), SECRET)
    foreign = await official.with_options(api_key=key).responses.create(model="m", input="a")
    unkept = await create(input="a", store=False)
    assert not unkept.store
    first = await create(input="z")
    second = await create(input="b", previous_response_id=first.id)
    sample = "g000001-e0-a1"
    calls.restore(sample, [record for record in bus.records if record.execution_id == "g000001-e0"])
    for name in ("resp_none", "none", first.id.replace("resp", "msg"), foreign.id, unkept.id, first.id, second.id):
        with pytest.raises(openai.BadRequestError) as refused:
            await create(input="b", previous_response_id=name)
        error = refused.value
        assert (error.code, error.param, error.type) == (
            "previous_response_not_found",
            "previous_response_id",
            "invalid_request_error",
        )
        assert name in error.message
    whole = [{"role": "user", "content": "z"}, *items_of(first), {"role": "user", "content": "b"}]
    assert (await create(input=whole)).id == second.id
    assert (await create(input="c", previous_response_id=second.id)).status == "completed", "it is known again"


async def test_a_response_that_nobody_was_told_cannot_be_gone_on_from(client, monkeypatch):
    """Its record is one of a call that was cut off."""
    official, pool, bus, _ = client
    monkeypatch.setattr(calls_module, "RETRY_GRACE_S", 0.0)
    pool.finish = "aborted"
    with pytest.raises(openai.APIStatusError):
        await official.responses.create(model="m", input="a")
    assert [record.finish_reason for record in bus.records] == ["cancelled"]
    pool.finish = "stop"
    with pytest.raises(openai.BadRequestError) as refused:
        await official.responses.create(model="m", input="b", previous_response_id=f"resp_{bus.records[0].call_id}")
    assert refused.value.code == "previous_response_not_found"


ODD = [
    {"previous_response_id": 5},
    {"previous_response_id": ["r"]},
    {"previous_response_id": "resp_1"},
    {"store": "no"},
]


@pytest.mark.parametrize("body", ODD)
def test_odd_values_are_refused(body):
    with pytest.raises(BadRequest) as refused:
        parse_responses_request(json.dumps({"input": "x", **body}).encode())
    assert refused.value.param == next(iter(body))


SAYS = [
    "hello", "", " spaced ", "<think>hm</think>so", "<think>a</think><think>b</think> c", tool_text("read", '{"path": 1.0}'),
    "Both." + tool_text("patch", '{"input": "*** Begin", "why": 1}') + tool_text("read", "{}"),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_any_conversation_is_the_same_whole_and_by_id(model, seed):
    """Digests and tokens of random trees: words put into the assistant's mouth, thoughts left out, inputs of one item and of many."""
    draw, harness = random.Random(seed), Harness(model)
    session, earlier = harness.session, Earlier()
    session.memory.earlier = earlier
    known: list[tuple[str, list[dict], list[dict]]] = [("", [], [])]  # (id, whole input, output) of each response
    for _ in range(8):
        previous, before, said = draw.choice(known[-3:])
        new = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
            for item in said
            if "call_id" in item
        ]
        new += [
            {"role": draw.choice(["user", "assistant", "developer"]), "content": f" {draw.random()}\n"}
            for _ in range(draw.randrange(1, 3))
        ]
        whole = [*before, *[item for item in said if item["type"] != "reasoning" or draw.random() < 0.5], *new]
        common = {"tools": TOOLS, "instructions": draw.choice([None, "Mend."])}
        by_id = common | ({"previous_response_id": previous} if previous else {}) | {"input": new}
        asked = parse_responses_request(json.dumps(by_id).encode(), session.memory)
        sent = parse_responses_request(json.dumps(common | {"input": whole}).encode(), session.memory)
        prompt, other = session.prompt(asked, model), session.prompt(sent, model)
        assert (prompt.digest, prompt.ids.tolist()) == (other.digest, other.ids.tolist())
        parsed = harness.answered(draw.choice([asked, sent]), draw.choice(SAYS))
        name = harness.records[-1].call_id
        earlier.keep(name, draw.choice([asked, sent]).input)
        body = response_body(Reply(name, "m", 5, parsed, "stop", 3, 7), asked)
        known.append((body["id"], whole, body["output"]))
