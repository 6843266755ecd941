"""Tool calls written as Python: literals only, whatever else is written stays text, and nothing is evaluated (B2)."""

import json
from random import Random

import pytest

from services.rollout.core.blocks import FirstCall
from services.rollout.core.calls_python import DEPTH_MAX
from services.rollout.core.streaming import SaidStream
from services.rollout.core.toolcalls import parse

from .families import BY_NAME

PYTHONIC, LLAMA_4 = BY_NAME["pythonic"], BY_NAME["llama-4"]


def read(text: str, known: dict | None = None, family=PYTHONIC):
    return parse(text, "c", schemas=known or {}, family=family)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", {}), ("a=1", {"a": 1}), ("a = 1 , b='x',", {"a": 1, "b": "x"}), ('a="]) [f("', {"a": "]) [f("}),
        ("a=None, b=True, c=false, d=null", {"a": None, "b": True, "c": False, "d": None}),
        ("a=[1, (2, 3,), {'k': [],},]", {"a": [1, [2, 3], {"k": []}]}),
        ("a=-1.5e3, b=0x10, c=1_000, d=.5", {"a": -1500.0, "b": 16, "c": 1000, "d": 0.5}),
        ("from='x', class=1, in-file='y'", {"from": "x", "class": 1, "in-file": "y"}),
        (r"a='it\'s \n \x41 \u00e9 \d \\d'", {"a": "it's \n A é \\d \\d"}), (r"a=r'\n\d'", {"a": r"\n\d"}), ("a='two\nlines'", {"a": "two\nlines"}),
        ('a="""say "this", """, b=\'\'\'it\'s\'\'\'', {"a": 'say "this", ', "b": "it's"}), ('a="", b=\'\'', {"a": "", "b": ""}),
        ("a=NaN, b=1e999", {"a": "NaN", "b": "1e999"}), (r"a='\ud800\UFFFFFFFF'", {"a": "\ud800\\UFFFFFFFF"}), ("a=1, a=2", {"a": 2}),
    ],
)  # fmt: skip
def test_arguments_are_literals_by_name(written, said):
    parsed = read(f"[g({written}), f(a=1)]")
    assert parsed.content == "" and [call.name for call in parsed.calls] == ["g", "f"]
    assert json.loads(parsed.calls[0].arguments) == said and parsed.calls[0].arguments.encode()


@pytest.mark.parametrize(
    "answer",
    [
        "[this](that) is a link", "[1, 2]", "[f]", "[]", "[f(1)]", "[f('a')]", "[f(a=b)]", "[f(a=g())]", "[f(a=1+1)]", "[f(a='x' 'y')]",
        "[f(a=f'x')]", "[f(a=b'x')]", "[f(**{})]", "[f(a==1)]", "[f(a=[1 for x in y])]", "[f(a=__import__('os'))]", "[f(a={1: 2})]",
        "[f(a={1, 2})]", "[f('a': 1)]",
        "[f(a=[)]", "[f(a=1] )", "f(a=1)", ", f(a=1)", "[f(a=1) is what I call]", "I say [f(a=1)]", "[f(a=1,,b=2)]", "[f(a=", "[f(a='x", "[f(a=Tru",
        "<|python_start|>print(1)<|python_end|>",
    ],
)  # fmt: skip
def test_what_is_no_call_stays_text(answer):
    """Links, lists, code: an answer that begins with a bracket is one all the same."""
    assert (read(answer).content, read(answer).calls) == (answer, ())


def test_what_is_deep_or_long_without_end_stays_text():
    for unit in ("[", "(", "{", "-", "9", "[f(", "a=", "1,", "'", '"', "\\"):
        for said in (unit * 50_000, f"[f(a={unit * 50_000}", f"[f(a={unit * 50_000})]"):
            assert (read(said).content, read(said).calls) == (said, ()), unit
    deep = [f"[f(a={'[' * count}{']' * count})]" for count in (DEPTH_MAX - 1, DEPTH_MAX)]
    assert [len(read(said).calls) for said in deep] == [1, 0]


@pytest.mark.parametrize(
    "text",
    [
        "[f(a=1)]",
        "<|python_start|>[f(a=1)]<|python_end|>",
        "<|python_start|>f(a=1)<|python_end|>",
        "\n[ f(a=1) ] ",
        "[f(a=1)",
    ],
)
def test_a_list_may_stand_between_marks_and_lack_its_end(text):
    assert [(call.name, call.arguments) for call in read(text).calls] == [("f", '{"a": 1}')] and read(
        text
    ).content == ""


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "<|python_start|>{}<|python_end|>",
        "<|python_start|><|python_end|>{}",
        "<|python_start|>{};{}<|python_end|>",
        "<|python_end|>{}",
        "{}{}",
    ],
)
def test_llama_4_writes_json_beside_or_between_the_same_marks(text):
    one = '{"name": "f", "parameters": {"a": 1}}'
    parsed = read(text.replace("{}", one), family=LLAMA_4)
    assert {(call.name, call.arguments) for call in parsed.calls} == {("f", '{"a": 1}')} and parsed.content == ""
    assert len(parsed.calls) == text.count("{}")
    stream = SaidStream(family=LLAMA_4)
    for sign in text.replace("{}", one):
        stream.push(sign)
    assert stream.content == ""


def test_a_text_for_what_is_none_by_the_tools_schema_is_read_as_what_it_is():
    """Templates write all values as texts, which the model imitates."""
    known = {"f": {"line": {"type": "integer"}, "path": {"type": "string"}, "deep": {"type": "boolean"}}}
    (call,) = read('[f(line="12", path="12", deep="True", other="12")]', known).calls
    assert json.loads(call.arguments) == {"line": 12, "path": "12", "deep": True, "other": "12"}


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_any_size_are_read_as_the_whole(seed):
    """Quotes of both kinds, one or three: where a call ends is where its bracket closes outside of texts."""
    rng = Random(seed)
    bits = [*"\"'\\()[]{},=1x \n", '"""', "'''", "a=", "f(", "[f(", "), g(", "<|python_end|>", 'a="y"']
    for _ in range(400):
        text = "[f(a=" + "".join(rng.choices(bits, k=rng.randint(1, 12)))
        first, stream, found = FirstCall(False, PYTHONIC), SaidStream(family=PYTHONIC), False
        for end in range(len(text) + 1):
            stream.push(text[max(0, end - 1) : end])
            found = found or first.is_in(text[:end])
        assert stream.content == ""
        assert found == any(read(text[:end]).calls for end in range(len(text) + 1)), text
