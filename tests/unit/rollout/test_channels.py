"""Turns of several messages in channels: read as one, whole and piece by piece, and gone on from as they were sampled (B1, B2, A6)."""

import itertools
from dataclasses import replace
from random import Random

import pytest

from gyre.records import Sampling
from services.rollout.core.channels import MARKS, as_one_turn
from services.rollout.core.normal import Call, Message
from services.rollout.core.session import Model
from services.rollout.core.streaming import SaidStream
from services.rollout.core.toolcalls import parse

from .builders import TOOLS, Harness, reply_message, request, tool_message
from .families import BY_NAME, model_of

GPT_OSS = BY_NAME["gpt-oss"]
GO = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
START = "<|start|>assistant"
HM = "<|channel|>analysis<|message|>hm<|end|>" + START
CALL = '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path": "a"}<|call|>'
FINAL = "<|channel|>final<|message|>It is 4.<|return|>"


@pytest.fixture(scope="module")
def made(model) -> Model:
    return model_of("gpt-oss", model)


def read(text: str):
    return parse(text, "c", family=GPT_OSS)


@pytest.mark.parametrize(
    "head",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", " to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.f<|message|>", "<|channel|>commentary to=functions.f json<|message|>",
        "<|channel|>commentary to=f <|constrain|>json<|message|>", " to=f<|channel|>commentary json<|message|>",
        "<|channel|>analysis to=functions.f code<|message|>", " to=functions.f<|message|>",
        "<|channel|>commentary to=functions.f<|channel|>commentary json<|message|>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "<|return|>", ""])
def test_a_call_is_read_wherever_its_head_names_the_tool_and_whatever_ends_it(head, end):
    for before, content in (
        ("", ""),
        (HM, ""),
        (HM + "<|channel|>commentary<|message|>I look.<|end|>" + START, "I look."),
    ):
        parsed = read(before + head + '{"a": "<|call|> <|start|>assistant"}' + end)
        assert [(call.name, call.arguments) for call in parsed.calls] == [("f", '{"a": "<|call|> <|start|>assistant"}')]
        assert (parsed.content, parsed.reasoning) == (content, "hm" if before else "")


@pytest.mark.parametrize(
    ("text", "reasoning", "content", "names"),
    [
        (HM + FINAL, "hm", "It is 4.", []),
        (FINAL, "", "It is 4.", []),
        ("It is 4.", "", "It is 4.", []),
        (HM + HM + FINAL, "hm\n\nhm", "It is 4.", []),
        ("<|channel|>analysis<|message|>hm, and", "hm, and", "", []),
        ("<|channel|>analysis<|message|>hm<|channel|>final<|message|>yes", "hm", "yes", []),
        ('<|channel|>final <|constrain|>json<|message|>{"a": 1}<|return|>', "", '{"a": 1}', []),
        ("<|channel|>commentary<|message|>So.<|end|>" + START + FINAL, "", "So.\n\nIt is 4.", []),
        (HM + "<|channel|>commentary<|message|>So.<|end|>" + START + HM + CALL, "hm", "So.", ["read_file"]),
        (CALL.replace("<|call|>", "<|end|>") + START + CALL, "", "", ["read_file"] * 2),
        (CALL + START + HM + CALL + START + FINAL, "", "It is 4.", ["read_file"] * 2),
        (HM + "<|channel|>fin", "hm", "", []),
        ("<|channel|>final<|message|>So.<|end|><|start|>assi", "", "So.", []),
        ("<|channel|>final<|message|>a <|channel|> is a mark, <|start|> too: to=x", "", "a <|channel|> is a mark, <|start|> too: to=x", []),
        ("to=5 is what I say", "", "to=5 is what I say", []),
        ("<|channel|>commentary to=python code<|message|>print(1)", "", "<|channel|>commentary to=python code<|message|>print(1)", []),
        (HM + "<|channel|>commentary to=functions.f", "hm", "<|channel|>commentary to=functions.f", []),
        ('<|channel|>commentary to=functions.f json<|message|>{"a": "x', "", '<|channel|>commentary to=functions.f json<|message|>{"a": "x', []),
    ],
)  # fmt: skip
def test_a_turn_of_messages_is_reasoning_content_and_calls(text, reasoning, content, names):
    parsed = read(text)
    assert (parsed.reasoning, parsed.content, [call.name for call in parsed.calls]) == (reasoning, content, names)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_said_in_whatever_pieces_is_told_alike(seed):
    """Marks anywhere, texts cut anywhere: nothing that was told early is taken back, and every character is looked at a few times."""
    rng = Random(seed)
    bits = [
        *MARKS, *(mark[: len(mark) // 2] for mark in MARKS), START, HM, CALL, FINAL, CALL[:30], CALL[30:], "<|channel|>analysis<|message|>",
        "<|channel|>commentary to=", " to=functions.f", "to=", "json", "{", "}", '"', "\\", '{"a": "', " ", "\n", "a", "é", "<", "final",
    ]  # fmt: skip
    for _ in range(500):
        pieces, think_open = rng.choices(bits, k=rng.randint(1, 14)), rng.random() < 0.2
        stream, said = SaidStream(think_open, GPT_OSS), [("", "")]
        for piece in pieces:
            for part in (piece[: len(piece) // 2], piece[len(piece) // 2 :]):
                stream.push(part)
                said.append((stream.reasoning, stream.content))
        parsed = parse("".join(pieces), "c", think_open, family=GPT_OSS)
        said.append((parsed.reasoning, parsed.content))
        for before, after in itertools.pairwise(said):
            assert after[0].startswith(before[0]) and after[1].startswith(before[1]), pieces
        assert all(not content or thought == parsed.reasoning for thought, content in said), pieces


def test_content_is_told_while_it_comes():
    stream, told = SaidStream(family=GPT_OSS), []
    for character in HM + FINAL.removesuffix("<|return|>"):
        stream.push(character)
        told.append(stream.content)
    assert stream.reasoning == "hm" and stream.content == "It is 4."
    assert told[-len("is 4.") :] == ["It i", "It is", "It is", "It is 4", "It is 4."]


@pytest.mark.parametrize(
    "unit", [*MARKS, "<|channel|>commentary to=functions.f", CALL[:-8], '"', "<|channel|>commentary to=f<|message|>{"]
)
def test_a_call_before_marks_without_end_is_found(unit):
    """100,000 of them in a turn: what they cost is what they are long, or this would not end."""
    assert [call.name for call in read(CALL + START + unit * 100_000).calls][:1] == ["read_file"]
    assert as_one_turn("{" * 100_000, False) == "{" * 100_000


@pytest.mark.parametrize("has_thought", [True, False])
def test_a_conversation_goes_on_from_what_was_sampled_and_what_follows_is_whole_renderings(made, has_thought):
    """The template drops the thoughts of earlier turns, writes calls otherwise, and `<|end|>` for the `<|return|>` that was sampled."""
    harness, encode = Harness(made), made.template.encode
    lead = HM if has_thought else ""
    first = harness.call(GO, "", finish="tool_calls", ids=encode(lead + CALL))
    back = [*GO, reply_message(first, '{"path":"a"}'), tool_message(first, 0, "one")]
    second = harness.call(back, "", finish="stop", ids=encode(lead + FINAL)[:-1])
    last = [*back, reply_message(second), {"role": "user", "content": "on"}]
    prompt = harness.session.prompt(request(last), made)
    assert harness.goes_on(harness.prompts[1], 0) and harness.goes_on(prompt, 1)
    assert made.template.decode(harness.prompts[1].delta.tolist()) == (
        '<|start|>functions.read_file to=assistant<|channel|>commentary<|message|>"one"<|end|><|start|>assistant'
    )
    assert made.template.decode(prompt.delta.tolist()) == "<|start|>user<|message|>on<|end|><|start|>assistant"
    for messages, made_of in ((back, harness.prompts[1]), (last, prompt)):
        delta = made_of.delta.tolist()
        assert harness.whole(messages)[-len(delta) :] == delta
    assert harness.ids([*back, reply_message(second) | {"reasoning_content": "other"}, last[-1]]) == prompt.ids.tolist()


def test_a_turn_that_was_cut_is_closed_as_the_template_closes_an_earlier_one(made):
    harness, encode, decode = Harness(made), made.template.encode, made.template.decode
    cut = harness.call(GO, "", finish="length", ids=encode("<|channel|>final<|message|>It"))
    said = harness.session.prompt(request([*GO, reply_message(cut), {"role": "user", "content": "on"}]), made)
    assert decode(said.delta.tolist()) == "<|end|><|start|>user<|message|>on<|end|><|start|>assistant"
    for words in (" is.<|end|>", "<|return|>"):
        ended = Harness(made)
        text = ended.call(GO, "", finish="length", ids=encode("<|channel|>final<|message|>It" + words))
        said = ended.session.prompt(request([*GO, reply_message(text), {"role": "user", "content": "on"}]), made)
        assert decode(said.delta.tolist()) == "<|start|>user<|message|>on<|end|><|start|>assistant"
    called = Harness(made)
    first = called.call(GO, "", finish="length", ids=encode(CALL.removesuffix("<|call|>")))
    back = called.session.prompt(request([*GO, reply_message(first), tool_message(first, 0, "one")]), made)
    assert called.goes_on(back) and decode(back.delta.tolist()).startswith("<|call|><|start|>functions.read_file to=")


def test_what_ends_a_turn_of_calls_ends_the_output_though_the_configuration_does_not_say_so(made):
    encode = made.template.encode
    assert made.template.stop_ids == tuple(encode("<|return|>")) and made.stop_ids == tuple(
        encode("<|return|><|call|>")
    )


def test_a_tool_without_a_description_gets_an_empty_one_where_the_template_refuses_it(made):
    assert "// {" in made.template.decode(Harness(made).ids(GO, tools=TOOLS)) and "description" not in str(TOOLS)


def test_thoughts_of_a_conversation_that_is_not_on_record_are_shown_as_the_template_wants_them(made):
    call = Call("call_1", "read_file", "{}")
    for content, shown in (("", "thought"), ("words", "words")):
        turn = Message("assistant", content, (call,), reasoning="thought")
        text = made.template.decode(
            made.renderer.whole([Message("user", "u"), turn, Message("tool", "r", (), "call_1")], None)
        )
        assert f"<|channel|>analysis<|message|>{shown}<|end|>" in text and text.count("thought") == (shown == "thought")


def test_a_reply_that_goes_on_from_given_words_is_in_the_final_channel(made):

    prefix = made.prefix(replace(request(GO), prefill="It is"))
    assert prefix == "<|channel|>final<|message|>It is"
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=9, seed=1, prefix=prefix)
    assert made.read(made.template.encode(" 4.<|return|>"), "c", sampling, TOOLS).content == "It is 4."
