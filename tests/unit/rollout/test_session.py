"""The token trie: what was sampled is what the next prompt contains (B1, B2, B3)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gyre.records import array
from services.rollout.core import normal
from services.rollout.core.session import Model, Session
from services.rollout.core.template import ChatTemplate

from .builders import Harness, reply_message, request, tool_message, tool_text

START = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]


def contains(prompt: list[int], part: list[int]) -> bool:
    return any(prompt[at : at + len(part)] == part for at in range(len(prompt) - len(part) + 1))


def test_a_prompt_holds_the_sampled_ids_even_where_the_tokenizer_would_choose_others(model):
    """B1, rllm#272: the text "hello" is one id or several; what was sampled as several letters stays several ids."""
    letters = [model.template.encode(letter)[0] for letter in "hello"]
    assert model.template.encode("hello") != letters, "the case needs a text with two encodings"
    harness = Harness(model)
    reply = harness.call(START, "", ids=letters)
    assert reply.content == "hello"
    after = harness.ids([*START, reply_message(reply), {"role": "user", "content": "on"}])
    first = harness.prompts[0].ids.tolist()
    assert after[: len(first) + 6] == [*first, *letters, model.stop_ids[0]]


def test_several_tool_results_in_a_row_give_the_ids_of_whole_rendering(model):
    """slime#2263: rendered one at a time they became turns of their own; the template puts them into one user turn."""
    harness = Harness(model)
    text = tool_text("read_file", '{"path": "a.py"}') + "\n" + tool_text("run_tests", "{}")
    reply = harness.call(START, text)
    assert [call.name for call in reply.calls] == ["read_file", "run_tests"]
    messages = [*START, reply_message(reply), tool_message(reply, 0, "one"), tool_message(reply, 1, "two")]
    assert harness.ids(messages) == harness.whole(messages)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["tool_calls"][0]["function"].update(arguments='{ "line":2 , "path" : "a.py"}'),
        lambda m: m["tool_calls"][0]["function"].update(arguments='{"line": 2.0, "path": "a\\u002epy"}'),
        lambda m: m["tool_calls"][0]["function"].update(arguments={"line": 2, "path": "a.py"}),
        lambda m: m.update(content=None),
        lambda m: m.update(reasoning_content="I thought", refusal=None, annotations=[]),
        lambda m: m["tool_calls"][0].update(id="other"),
    ],
    ids=["spacing and order", "numbers and escapes", "an object", "null content", "extra fields", "ids"],
)
def test_what_means_nothing_does_not_fork(model, change):
    """B2."""
    harness = Harness(model)
    reply = harness.call(START, tool_text("read_file", '{"path": "a.py", "line": 2}'))
    sent = reply_message(reply)
    change(sent)
    messages = [*START, sent, tool_message(reply, 0, "r")]
    prompt = harness.session.prompt(request(messages, model="another-alias"), model)
    assert prompt.parent.call_id == harness.records[0].call_id
    assert prompt.kept == len(harness.prompts[0].ids) + len(array(harness.records[0].output_ids, "int32"))


def test_names_of_calls_mean_something_where_the_template_shows_them(model):
    """B1: two histories that the model reads differently are never one, so no reply to one is given for the other."""
    template = model.template
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.tool_call_id }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function.name }}{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    telling = Model(ChatTemplate(template._tokenizer, source, {}, template.stop_ids))
    assert telling.renderer.shows_ids and not model.renderer.shows_ids

    def talk(name: str) -> list[dict]:
        call = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        said = {"role": "assistant", "content": "", "tool_calls": [call]}
        return [*START, said, {"role": "tool", "tool_call_id": name, "content": "r"}]

    for shown, is_same in ((telling, False), (model, True)):
        one, other = (Session("s").prompt(request(talk(name)), shown) for name in ("a", "b"))
        assert (one.digest == other.digest) == is_same == (one.ids.tolist() == other.ids.tolist())
    harness = Harness(telling)
    reply = harness.call(START, tool_text("read_file", "{}"))
    messages = [*START, reply_message(reply), tool_message(reply, 0, "r")]
    assert harness.goes_on(harness.session.prompt(request(messages), telling))


def test_an_assistant_turn_split_into_several_messages_does_not_fork(model):
    """B2: some harnesses send text and each tool call as messages of their own."""
    harness = Harness(model)
    reply = harness.call(START, "look\n" + tool_text("read_file", "{}") + tool_text("run_tests", "{}"))
    whole = reply_message(reply)
    calls = whole["tool_calls"]
    split = [
        {"role": "assistant", "content": "look"},
        {"role": "assistant", "content": None, "tool_calls": calls[:1]},
        {"role": "assistant", "content": "", "tool_calls": calls[1:]},
    ]
    results = [tool_message(reply, 0, "a"), tool_message(reply, 1, "b")]
    assert harness.ids([*START, *split, *results]) == harness.ids([*START, whole, *results])
    prompt = harness.session.prompt(request([*START, *split, *results]), model)
    assert prompt.parent.call_id == harness.records[0].call_id


@pytest.mark.parametrize("text", ["", "look\n"])
def test_calls_of_one_turn_that_come_back_each_with_its_result_are_the_recorded_turn(model, text):
    """B2: some clients tell parallel calls one after the other. Two turns that were two stay two."""
    harness = Harness(model)
    reply = harness.call(START, text + tool_text("read_file", "{}") + tool_text("run_tests", "{}"))
    whole, results = reply_message(reply), [tool_message(reply, 0, "a"), tool_message(reply, 1, "b")]
    first, second = whole["tool_calls"]
    one_by_one = [
        whole | {"tool_calls": [first]},
        results[0],
        {"role": "assistant", "tool_calls": [second]},
        results[1],
    ]
    prompt = harness.session.prompt(request([*START, *one_by_one]), model)
    assert harness.goes_on(prompt) and prompt.ids.tolist() == harness.ids([*START, whole, *results])
    said = [*START, *one_by_one, reply_message(harness.call([*START, *one_by_one], tool_text("read_file", "{}")))]
    third = tool_message(model.again(harness.records[-1]), 0, "c")
    assert harness.goes_on(harness.session.prompt(request([*said, third]), model))
    spoken = [*one_by_one[:2], one_by_one[2] | {"content": "and"}, results[1]]
    assert not harness.goes_on(harness.session.prompt(request([*START, *spoken]), model), 0)


TWO = tool_text("read_file", '{"path": "a"}') + tool_text("read_file", '{"path": "b"}')


def _one_by_one(reply, *order: int) -> list[dict]:
    """Each call with its result, in this order."""
    whole = reply_message(reply)
    told = [
        (whole | {"tool_calls": [whole["tool_calls"][at]]}, tool_message(reply, at, f"result {at}")) for at in order
    ]
    return [message for pair in told for message in pair]


@pytest.mark.parametrize("is_split", [True, False])
def test_calls_that_come_back_as_they_were_done_are_the_recorded_turn(model, is_split):
    """B2: the second was done first. Which result is which call's stays told by their order."""
    harness = Harness(model)
    reply = harness.call(START, TWO)
    in_order = harness.ids([*START, reply_message(reply), *(tool_message(reply, at, f"result {at}") for at in (0, 1))])
    messages = [*START, *_one_by_one(reply, 1, 0)]
    if not is_split:
        messages = [*START, messages[2], messages[4], messages[3], messages[5]]
    prompt = harness.session.prompt(request(messages), model)
    assert harness.goes_on(prompt) and prompt.ids.tolist() == in_order
    assert harness.goes_on(harness.session.prompt(request([*messages, {"role": "user", "content": "on"}]), model))


@pytest.mark.parametrize("again", ["whole", "one by one"])
def test_a_turn_that_comes_twice_is_two_turns(model, again):
    """B2: no message has a call twice."""
    harness = Harness(model)
    reply = harness.call(START, TWO)
    twice = _one_by_one(reply, 0, 1)
    if again == "whole":
        twice = [reply_message(reply), twice[1], twice[3]]
    messages = [*START, *_one_by_one(reply, 0, 1), *twice]
    whole = [reply_message(reply), tool_message(reply, 0, "result 0"), tool_message(reply, 1, "result 1")]
    assert harness.ids(messages) == harness.ids([*START, *whole, *whole])
    told = normal.together(request(messages).messages, harness.session._parallel)
    assert [len(message.calls) for message in told] == [0, 0, 2, 0, 0, 2, 0, 0]


def test_many_conversations_beside_each_other_cost_what_is_new_in_each(model, monkeypatch):
    """Sub-agents take turns: what was digested of one is not digested again because others spoke meanwhile."""
    harness, digested, real = Harness(model), [], normal.next_digest
    monkeypatch.setattr(normal, "next_digest", lambda *args: digested.append(args) or real(*args))
    talks = [[START[0], {"role": "user", "content": f"agent {index}"}] for index in range(12)]
    for turn in range(8):
        for talk in talks:
            before = len(digested)
            talk += [reply_message(harness.call(talk, f"said {turn}")), {"role": "user", "content": "on"}]
            assert len(digested) - before <= 2
    for _ in range(4):
        harness.ids(talks[0])
    assert len(harness.session._chains) == len(talks), "one conversation is remembered once"


@pytest.mark.parametrize("kind", ["edited reply", "edited user", "tools", "system", "arguments"])
def test_what_means_something_forks(model, kind):
    """B2: the recorded reply is no part of a history that differs in meaning."""
    harness = Harness(model)
    reply = harness.call(START, "see " + tool_text("read_file", '{"path": "a.py"}'))
    sent, start, more = reply_message(reply), [dict(m) for m in START], {}
    if kind == "edited reply":
        sent["content"] = "saw"
    elif kind == "edited user":
        start[1]["content"] = "stop"
    elif kind == "system":
        start[0]["content"] = "t"
    elif kind == "arguments":
        sent["tool_calls"][0]["function"]["arguments"] = '{"path": "b.py"}'
    else:
        more["tools"] = []
    messages = [*start, sent, tool_message(reply, 0, "r")]
    prompt = harness.session.prompt(request(messages, **more), model)
    assert prompt.kept < len(harness.prompts[0].ids) + len(array(harness.records[0].output_ids, "int32"))
    assert prompt.ids.tolist() == harness.whole(messages, **more)


def test_a_forked_history_gets_the_models_own_argument_text_back(model):
    """B2: where the context is new (compaction), a call known by its id is written as the model wrote it."""
    harness = Harness(model)
    written = '{"path":   "a.py"}'
    reply = harness.call(START, tool_text("read_file", written))
    sent = reply_message(reply, spacing='{"path":"a.py"}')
    messages = [{"role": "user", "content": "summary"}, sent, tool_message(reply, 0, "r")]
    assert written in model.template.decode(harness.ids(messages))


def test_an_unknown_context_shares_exactly_the_tokens_it_has_in_common(model):
    """B3: a compacted context hangs where it parts from what is known; its delta and the shared tokens give the whole prompt."""
    harness = Harness(model)
    harness.call(START, "first answer")
    other = [START[0], {"role": "user", "content": "go elsewhere"}]
    harness.call(other, "second answer")
    first, second = (prompt.ids for prompt in harness.prompts)
    common = int(np.argmin(first[: min(len(first), len(second))] == second[: min(len(first), len(second))]))
    assert harness.prompts[1].kept == common > 0
    context = harness.session.trie.context(harness.records[1].call_id)
    assert context.tokens().tolist() == [*second.tolist(), *array(harness.records[1].output_ids, "int32").tolist()]


def test_a_turn_cut_by_length_is_closed_by_tokens_nobody_sampled(model):
    """B1: the template's end of turn is in the next prompt, and not in the record's output."""
    harness = Harness(model)
    reply = harness.call(START, "hello wor", finish="length")
    messages = [*START, reply_message(reply), {"role": "user", "content": "on"}]
    assert harness.ids(messages) == harness.whole(messages)
    assert model.stop_ids[0] not in array(harness.records[0].output_ids, "int32")


CALL = tool_text("read_file", '{"path": "a"}')


@pytest.mark.parametrize(
    "said",
    [["hello wor", "ld on"], ["hello wor", "ld", "and", "on"], ["hello wor", "ld " + CALL], [CALL, CALL], ["<think>a</think>b", "<think>c</think>d"]],
)  # fmt: skip
@pytest.mark.parametrize("given", [[], [{"role": "assistant", "content": " Well: "}]])
def test_turns_of_an_assistants_in_a_row_stay_on_the_recorded_path(model, said, given):
    """B1: a harness sends a cut reply back and gets another one. Both come back as one turn, however they are split; a session that is rebuilt from
    its records knows it, too, and so does it where the first words are the harness's own."""
    harness, messages = Harness(model), [*START, *given]
    for text in said:
        messages = [*messages, reply_message(harness.call(messages, text, finish="length"))]
    last = harness.session.trie.context(harness.records[-1].call_id).tokens().tolist()
    following = [*messages, {"role": "user", "content": "v"}]
    prompt = harness.ids(following)
    assert prompt[: len(last)] == last and len(prompt) > len(last)
    assert last[: len(harness.prompts[-1].ids)] == harness.prompts[-1].ids.tolist()
    rebuilt = Session(harness.session.sample_id)
    for record in harness.records:
        rebuilt.take(record, model)
    assert rebuilt.prompt(request(following), model).ids.tolist() == prompt


def test_a_retry_is_found_by_its_conversation_and_its_parameters(model):
    """AReaL#1498: the same call is the same record; a call with another output bound is another call."""
    harness = Harness(model)
    harness.call(START, "hello")
    digest = harness.session.prompt(request([dict(m) for m in START]), model).digest
    wanted = structs.replace(harness.records[0].sampling, seed=7)
    assert harness.session.recorded(digest, wanted, 64).call_id == harness.records[0].call_id
    for other in ({"max_tokens": 1}, {"top_p": 0.5}, {"stop_sequences": ["x"]}):
        changed = structs.replace(wanted, **other)
        assert harness.session.recorded(digest, changed, changed.max_tokens) is None


def test_an_abandoned_call_is_kept_and_is_neither_a_turn_nor_a_reply(model):
    """AReaL#1498: its tokens are on record; the retry is a call of its own from the same prompt."""
    harness = Harness(model)
    harness.call(START, "hel", finish="cancelled")
    assert (harness.session.calls, harness.session.turns) == (1, 0)
    assert harness.session.recorded(harness.prompts[0].digest, harness.records[0].sampling, 64) is None
    reply = harness.call(START, "hello")
    assert (harness.session.calls, harness.session.turns) == (2, 1)
    assert harness.prompts[1].kept == len(harness.prompts[0].ids)
    again = harness.session.prompt(request([*START, reply_message(reply), {"role": "user", "content": "x"}]), model)
    assert again.parent.call_id == harness.records[1].call_id


words = st.text(st.sampled_from('ab <>{}"\n\\é日'), min_size=1, max_size=12)
replies = st.one_of(
    words,
    st.builds(
        lambda w, key: f"{w}\n" + tool_text("read_file", '{"path":  "' + key + '"}'), words, st.sampled_from("xyz")
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(replies, words, st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
def test_recorded_output_is_a_contiguous_part_of_the_next_prompt(model, turns):
    """B1 (TITO), for any texts, cuts and branches; and a session rebuilt from its records makes the same prompts."""
    harness = Harness(model)
    messages, history = list(START), []
    for text, answer, back, is_cut in turns:
        if back == 3 and len(history) > 1:
            messages = list(history[-2])  # the harness goes back and says something else
        reply = harness.call(
            [*messages, {"role": "user", "content": answer}], text, finish="length" if is_cut else "stop"
        )
        history.append(messages)
        messages = [*messages, {"role": "user", "content": answer}, reply_message(reply)]
        nexts = [tool_message(reply, index, answer) for index in range(len(reply.calls))] or [
            {"role": "user", "content": "n"}
        ]
        output = array(harness.records[-1].output_ids, "int32").tolist()
        prompt = harness.ids([*messages, *nexts])
        assert contains(prompt, output)
        assert prompt[: len(harness.prompts[-1].ids)] == harness.prompts[-1].ids.tolist()
        messages = [*messages, *nexts[: len(reply.calls)]]
    rebuilt = Session(harness.session.sample_id)
    for record in harness.records:
        rebuilt.take(record, model)
    probe = request([*messages, {"role": "user", "content": "probe"}])
    assert rebuilt.prompt(probe, model).ids.tolist() == harness.session.prompt(probe, model).ids.tolist()
    assert (rebuilt.turns, rebuilt.calls, rebuilt.next_index) == (
        harness.session.turns, harness.session.calls, harness.session.next_index,
    )  # fmt: skip
    for record, prompt in zip(harness.records, harness.prompts, strict=True):
        assert rebuilt.trie.context(record.call_id).tokens()[: record.prompt_tokens].tolist() == prompt.ids.tolist()
