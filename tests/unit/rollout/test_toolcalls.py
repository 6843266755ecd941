"""Sampled text to messages, plain and streamed (B2)."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.rollout.core import blocks
from services.rollout.core.streaming import SaidStream, TokenText
from services.rollout.core.toolcalls import parse

from .builders import Harness, reply_message, tool_message, tool_text


def test_arguments_are_kept_exactly_as_written():
    """B2."""
    parsed = parse("a\n" + tool_text("f", '{ "b":1,\t"a": "\\u00e9" }') + "\n", "c1")
    assert parsed.content == "a"
    assert parsed.calls[0].arguments == '{ "b":1,\t"a": "\\u00e9" }'


@pytest.mark.parametrize(
    "block",
    [
        "not json",
        '{"arguments": {}}',
        '{"name": ""}',
        '{"name": 3}',
        "[1]",
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "args": {"a": 1}}',
        '{"name": "f", "parameters": {"a": 1}, "args": {"b": 1}}',
        '{"name": "f", "parameters": null}',
        "{" * 100_000,
        "",
    ],
)
def test_a_block_that_is_no_call_stays_content(block):
    """Bad model output is the harness's to answer, never an error."""
    text = f"<tool_call>{block}</tool_call>"
    parsed = parse(text, "c1")
    assert (parsed.content, parsed.calls) == (text, ())


def test_a_block_left_open_stays_content():
    assert parse('x <tool_call>{"name": "f"', "c").content == 'x <tool_call>{"name": "f"'


def test_ids_of_tool_calls_follow_from_the_call_and_differ_within_it():
    """B2: a gateway that started anew reads the same ids from the record."""
    text = tool_text("f", "{}") * 2
    first, again, other = parse(text, "c1"), parse(text, "c1"), parse(text, "c2")
    assert first == again
    assert len({call.call_id for call in (*first.calls, *other.calls)}) == 4


def test_reasoning_is_set_apart():
    assert parse("<think>hm</think>\n\nyes", "c") == parse("hm</think>yes", "c", think_open=True)
    assert parse("<think>hm</think>\n\nyes", "c").content == "yes"
    cut = parse("<think>hm, and", "c")
    assert (cut.reasoning, cut.content) == ("hm, and", ""), "cut in the middle of a thought: it is one all the same"


pieces = st.sampled_from(
    [
        "a",
        " ",
        "\n",
        "<",
        "<tool",
        "<tool_call>",
        "</tool_call>",
        '{"name": "f"}',
        "<think>",
        "</think>",
        "é",
        "日",
        "b c",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pieces, max_size=12), st.booleans())
def test_a_stream_gives_the_same_content_as_the_plain_reply(chunks, think_open):
    """What left early is a beginning of the reasoning and of the content, for any text and any cutting of it."""
    stream, said = SaidStream(think_open), [("", "")]
    for chunk in chunks:
        stream.push(chunk)
        said.append((stream.reasoning, stream.content))
    parsed = parse("".join(chunks), "c", think_open)
    said.append((parsed.reasoning, parsed.content))
    for before, after in itertools.pairwise(said):
        assert after[0].startswith(before[0]) and after[1].startswith(before[1])
    assert all(not content or reasoning == parsed.reasoning for reasoning, content in said)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), st.integers(1, 5))
def test_streamed_text_is_the_decoded_text(model, text, size):
    """Characters of several tokens come out whole."""
    ids = model.template.encode(text)
    stream = TokenText(model.template.decode)
    said = "".join(stream.push(ids[at : at + size]) for at in range(0, len(ids), size))
    assert model.template.decode(ids).startswith(said)
    assert said == text or "�" in text or text.startswith(said)


def test_arguments_given_as_text_are_taken_when_they_are_an_object():
    parsed = parse(tool_text("f", json.dumps('{"a": 1}')), "c")
    assert parsed.calls[0].arguments == '{"a": 1}'


@pytest.mark.parametrize(
    ("block", "arguments"),
    [
        ('{"name": "f", "arguments": {"text": "a\n\tb"}}', {"text": "a\n\tb"}),
        ('{"name": "f", "arguments": {"a": {"b": 1}}}}\n', {"a": {"b": 1}}),
        ('{"name": "f", "arguments": "{\\"a\\": \\"x\ny\\"}"}', {"a": "x\ny"}),
        ('{"name": "f"}}', {}),
        ('{"name": "f", "parameters": {"a": 1}}', {"a": 1}),
        ('{"name": "f", "arguments": {"a": 1}, "parameters": {"a": 2}}', {"a": 1}),
        ('{"name": "f", "arguments": {"a": "x </tool_call> y <tool_call>"}}', {"a": "x </tool_call> y <tool_call>"}),
        ('{"name": "f", "arguments": {"a": "\\ud800\n"}}', {"a": "\ud800\n"}),
        ("<function=f>\n<parameter=a>\n\u00e9\n</parameter>\n</function>", {"a": "\u00e9"}),
    ],
)
def test_what_models_write_for_json_is_repaired_and_comes_back_as_the_same_message(block, arguments):
    """A line break inside a text, a brace too many: the harness gets JSON, and the record holds what it got."""
    parsed = parse(f"<tool_call>\n{block}\n</tool_call>", "c")
    assert (parsed.content, [call.name for call in parsed.calls]) == ("", ["f"])
    assert json.loads(parsed.calls[0].arguments) == arguments and parsed.calls[0].arguments.encode()


def test_a_repaired_call_goes_on_from_its_recorded_tokens(model):
    harness, go = Harness(model), [{"role": "user", "content": "go"}]
    said = '<tool_call>\n{"name": "read_file", "arguments": {"path": "a\nb"}}\n</tool_call>'
    first = harness.call(go, said)
    back = [*go, reply_message(first, '{"path":"a\\nb"}'), tool_message(first, 0, "done")]
    sampled = model.template.encode(said)
    start = len(harness.ids(go))
    assert harness.ids(back)[start : start + len(sampled)] == sampled
    again = Harness(model)
    assert again.session.take(harness.records[0], model) == first and again.ids(back) == harness.ids(back)


@pytest.mark.parametrize(
    ("text", "content", "names"),
    [
        ('I look.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n', "I look.", ["f"]),
        (tool_text("f", "{}") + '<tool_call>{"name": "g", "arguments": {}}', "", ["f", "g"]),
        ('<tool_call>x</tool_call><tool_call>{"name": "g"}', "<tool_call>x</tool_call>", ["g"]),
        ('<tool_call>{"name": "f", "arguments": {"a": ', '<tool_call>{"name": "f", "arguments": {"a":', []),
        ('<tool_call>{"name": "f"} and then', '<tool_call>{"name": "f"} and then', []),
    ],
)
def test_a_whole_call_that_lacks_its_closing_mark_is_a_call(text, content, names):
    """Models often end their turn there; what is no whole JSON object stays content."""
    parsed = parse(text, "c")
    assert (parsed.content, [call.name for call in parsed.calls]) == (content, names)


@pytest.mark.parametrize(
    "unit",
    ["<tool_call>", '<tool_call>{"', '<tool_call>{"a": "', "<tool_call><function=f><parameter=a>", "<tool_call>x</tool_call>", "<tool_call> {} "],
)  # fmt: skip
def test_marks_that_a_model_repeats_are_not_each_read_to_the_end(monkeypatch, unit):
    """Some 8,000 of them kept a gateway for half a minute: how often a text is tried is bounded, and a call before that is still found."""
    tried, real = [], blocks._block
    monkeypatch.setattr(blocks, "_block", lambda text, start, *rest: tried.append(start) or real(text, start, *rest))
    said = tool_text("f", "{}")
    assert [call.name for call in parse(said * 200 + unit * 8000, "c").calls] == ["f"] * 200
    assert len(tried) == 200 + blocks.MISSES_MAX


def test_a_call_that_follows_an_open_mark_is_found():
    parsed = parse("I say <tool_call> and then " + tool_text("f", "{}"), "c")
    assert (parsed.content, len(parsed.calls)) == ("I say <tool_call> and then", 1)


def test_where_one_call_is_awaited_what_is_no_call_is_read_once(monkeypatch):
    """Blocks before the newest one are not read again with every token, whatever stands in them."""
    tried, real = [], blocks._block
    monkeypatch.setattr(blocks, "_block", lambda text, start, *rest: tried.append(start) or real(text, start, *rest))
    first, text = blocks.FirstCall(think_open=True), "so</think>"
    for _ in range(60):
        text += "<tool_call>no</tool_call>"
        assert not first.is_in(text)
    assert len(tried) == 60
    for piece in ("<tool_call>", '{"name": "f", "arguments": {"a": "', "</tool_call>", '"}}', "\n</tool"):
        text += piece
        assert not first.is_in(text)
    assert first.is_in(text + "_call>")


def test_bytes_that_are_no_character_keep_nothing_back():
    """Of a model that says stray bytes without end each is told, at a cost that does not grow with them; and a character after them is whole."""
    decoded = []

    def decode(ids):
        decoded.append(len(ids))
        return bytes(ids).decode("utf-8", "replace")

    stream = TokenText(decode)
    said = "".join(stream.push([0x80, 0xE6]) for _ in range(1000))
    whole = bytes([0x80, 0xE6] * 1000).decode("utf-8", "replace")
    assert len(said) >= len(whole) - 3 and max(decoded) < 16
    assert said + stream.push("日".encode()) == whole + "日"
