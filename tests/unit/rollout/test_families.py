"""Calls as each model family writes them: read back exactly, streamed as they are read whole, at the cost of reading them once (B2, A6)."""

import itertools
import json
import re
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.records import Sampling
from services.rollout.core import blocks, streaming
from services.rollout.core.blocks import FirstCall, is_closed
from services.rollout.core.callids import NINE, NUMBERED, tool_call_id
from services.rollout.core.channels import as_one_turn
from services.rollout.core.families import Family
from services.rollout.core.streaming import SaidStream
from services.rollout.core.toolcalls import Parsed, parse

from .builders import TOOLS, request
from .families import BY_NAME, TEMPLATES, model_of, written

LLAMA = BY_NAME["llama-3"]
"""Its calls have no marks: they stand at the beginning of the content, or nowhere."""
HAS_TEXTS = ("qwen3-coder", "glm-4.5", "glm-4.7", "minimax-m2", "deepseek-v3.2", "deepseek-v4")
"""Values stand as they are between marks."""
NO_JSON = (*HAS_TEXTS, "pythonic")
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
ALL_MARKS = sorted({mark for family in BY_NAME.values() for mark in family.marks} | {"[ARGS]", "[CALL_ID]", "<｜tool▁sep｜>", "```"})  # fmt: skip
TEXTS = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(ALL_MARKS)), max_size=5).map("".join)
VALUES = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)), max_leaves=6,
)  # fmt: skip
ARGUMENTS = st.dictionaries(st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True), VALUES, max_size=4)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3, unique_by=lambda call: call[0])
CUTS = re.compile(
    r"</(?:｜DSML｜)?(?:invoke|parameter)>|</parameter>|</arg_value>|</tool_call>\s*<tool_call>|</function>\s*</tool_call>"
)
"""What no text between marks can hold."""


@pytest.fixture(scope="module", params=BY_NAME)
def name(request) -> str:
    return request.param


@pytest.fixture(params=[name for name, family in BY_NAME.items() if family.open])
def marked(request) -> Family:
    return BY_NAME[request.param]


@pytest.fixture
def family(name) -> Family:
    return BY_NAME[name]


def schemas(calls: list[tuple[str, dict]]) -> dict:
    """Of tools that take just these values; two calls of one tool have to agree."""
    kinds = {
        str: "string",
        bool: "boolean",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
        type(None): "null",
    }
    return {tool: {key: {"type": kinds[type(value)]} for key, value in said.items()} for tool, said in calls}


def read(text: str, family: Family, known: dict | None = None) -> Parsed:
    return parse(text, "c", schemas=known or {}, family=family)


@settings(max_examples=60, deadline=None)
@given(CALLS, st.sampled_from(["", "I look.\n"]), st.sampled_from([None, 1]))
def test_any_call_is_read_back_exactly(name, calls, words, spacing):
    """Whatever a text holds, the family's own marks too; JSON arguments stay as they were written."""
    if name in HAS_TEXTS:
        calls = [
            (tool, {key: value for key, value in said.items() if not CUTS.search(str(value) + json.dumps(value, ensure_ascii=False))})
            for tool, said in calls
        ]  # fmt: skip
    words = words if BY_NAME[name].open else ""
    parsed = read(words + written(name, calls, spacing), BY_NAME[name], schemas(calls))
    assert parsed.content == words.strip() and [call.name for call in parsed.calls] == [tool for tool, _ in calls]
    for call, (_, said) in zip(parsed.calls, calls, strict=True):
        assert json.loads(call.arguments) == said
        assert name in NO_JSON or call.arguments == json.dumps(said, ensure_ascii=False, indent=spacing)


def _one_call(text: str, family: Family) -> str:
    """Without what only ends a section of calls."""
    return text.removesuffix(family.behind).rstrip()


def pieces(name: str) -> st.SearchStrategy[str]:
    family = BY_NAME[name]
    whole = written(name, [("f", {"a": "b"})])
    parts = [whole, whole[: len(whole) // 2], whole[len(whole) // 2 :], written(name, [("f", {}), ("g", {"a": 1})])]
    marks = [mark[:size] for mark in (*family.marks, *ALL_MARKS[::3]) for size in (len(mark) // 2, len(mark))]
    return st.sampled_from([*parts, *marks, "a", " ", "\n", "{", "}", '{"a": 1}', '"', "é", "f:0", "null", "b c"])


@settings(max_examples=100, deadline=None)
@given(data=st.data(), think_open=st.booleans())
def test_a_stream_gives_the_same_content_as_the_plain_reply(name, data, think_open):
    """What left early is a beginning of the reasoning and of the content, for any text and any cutting of it."""
    family, chunks = BY_NAME[name], data.draw(st.lists(pieces(name), max_size=12))
    stream, said = SaidStream(think_open, family), [("", "")]
    for chunk in chunks:
        stream.push(chunk)
        said.append((stream.reasoning, stream.content))
    parsed = parse("".join(chunks), "c", think_open, family=family)
    said.append((parsed.reasoning, parsed.content))
    for before, after in itertools.pairwise(said):
        assert after[0].startswith(before[0]) and after[1].startswith(before[1])
    assert all(not content or reasoning == parsed.reasoning for reasoning, content in said)


def test_a_call_is_told_of_when_it_is_whole_and_not_sooner(marked):
    """One character after the other: neither marks nor a part of a call were content, and its end is where it ends."""
    family = marked
    text = "So.\n" + written(family.name, [("f", {"a": f"}} {family.open} {family.close}", "b": [1]})])
    stream, first, whole = SaidStream(family=family), FirstCall(False, family), len(_one_call(text, family))
    for end, character in enumerate(text, 1):
        stream.push(character)
        assert "So.".startswith(stream.content)
        assert first.is_in(text[:end]) == (end >= whole), text[:end]
        if end == whole:
            break
    assert stream.content == "So."


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_piece_by_piece_is_what_the_whole_text_has(name, family, seed):
    """Never sooner; later only where an error stands that is looked for when the text has doubled, which one more reading of it shows."""
    rng, found = Random(seed), 0
    whole = written(name, [("g", {"a": 1})])
    bits = [
        family.open, family.close, *family.held, family.behind, whole, whole[: len(whole) // 2], whole[len(whole) // 2 :], "{", "}", '"', "\\",
        '{"a": "', '"}', ":0", "f", "[ARGS]", "<arg_key>a</arg_key>\n", "<arg_value>", "</arg_value>", "<｜tool▁sep｜>", "\n```json\n", "\n```",
        "<|tool_call_argument_begin|>", "null", " ", "\n",
    ]  # fmt: skip
    for _ in range(300):
        first, text = FirstCall(False, family), ""
        for piece in rng.choices(bits, k=rng.randint(1, 30)):
            text += piece
            is_in = first.is_in(text)
            found_whole = list(blocks.blocks(as_one_turn(text, False) if family.channels else text, family=family))
            if is_in != any(map(is_closed, found_whole)):
                is_late = any(block.call is None and not block.is_cut for block in found_whole)
                assert not is_in and FirstCall(False, family).is_in(text) and is_late, repr(text)
                break
            if is_in:
                found += 1
                break
    assert found > (20 if family.open else 5)


def test_marks_that_a_model_repeats_are_not_each_read_to_the_end(marked, monkeypatch):
    name, family = marked.name, marked
    tried, real = [], blocks._block
    monkeypatch.setattr(blocks, "_block", lambda text, start, *rest: tried.append(start) or real(text, start, *rest))
    said, call = written(name, [("f", {})]), written(name, [("f", {"a": "xy"})])
    for unit in (
        family.open,
        f"{family.open} ",
        f"{family.open}f",
        call[: call.index("xy") + 1],
        call[: call.index("xy")] + family.open,
    ):
        tried.clear()
        assert [one.name for one in read(said * 50 + unit * 4000, family).calls] == ["f"] * 50
        assert len(tried) <= 50 + blocks.MISSES_MAX


def test_a_call_whose_texts_are_closing_marks_is_read_a_few_times(name, family, monkeypatch):
    """Not with each of them; and its end is found at once."""
    call, read_, real = written(name, [("f", {"a": "xy"})]), [], blocks._block
    begin, end = call[: call.index("xy")], _one_call(call[call.index("xy") + 2 :], family)
    monkeypatch.setattr(blocks, "_block", lambda text, *rest: read_.append(len(text)) or real(text, *rest))
    first, text = FirstCall(False, family), ""
    for character in begin:
        text += character
        assert not first.is_in(text)
    read_.clear()
    for _ in range(400):
        text += family.close or "}"
        assert not first.is_in(text)
    assert first.is_in(text + end)
    assert sum(read_) < 8 * len(text)


@pytest.mark.parametrize("unit", ["word ", "<", " ", "close"])
def test_what_is_streamed_is_looked_at_a_few_times(marked, unit, monkeypatch):
    """Reasoning and content, whatever is said again and again: not all of it with each piece."""
    looked, real = [], streaming._without_begun
    monkeypatch.setattr(streaming, "_without_begun", lambda text, mark: looked.append(len(text)) or real(text, mark))
    stream, unit = SaidStream(True, marked), marked.close or "]" if unit == "close" else unit
    stream.push("So")
    for _ in range(1000):
        stream.push(unit)
    stream.push(marked.think[1] + "So")
    for _ in range(1000):
        stream.push(unit)
    stream.push("x")
    assert stream.reasoning == ("So" + unit * 1000).strip() and stream.content == "So" + unit * 1000 + "x"
    assert sum(looked) < 3 * len(marked.held) * max(map(len, marked.marks)) * 2000


def test_a_call_that_begins_with_white_space_without_end_is_read_a_few_times(name, family, monkeypatch):
    read_, real = [], blocks._block
    monkeypatch.setattr(blocks, "_block", lambda text, *rest: read_.append(len(text)) or real(text, *rest))
    first, text = FirstCall(False, family), family.open
    for _ in range(400):
        text += "\n"
        assert not first.is_in(text)
    assert sum(read_) < 8 * len(text)


def test_white_space_without_end_is_looked_at_once(name, family, monkeypatch):
    """Before the first word it is open whether it will be reasoning."""
    looked, real = [], blocks._SPACE

    def match(text: str, at: int = 0) -> re.Match | None:
        found = real.match(text, at)
        looked.append(found.end() - at)
        return found

    monkeypatch.setattr(blocks, "_SPACE", SimpleNamespace(match=match))
    first, text = FirstCall(False, family), ""
    for _ in range(400):
        text += " \n"
        assert not first.is_in(text)
    assert first.is_in(text + written(name, [("f", {"a": "b"})]))
    assert sum(looked) < 4 * len(text)


def test_a_call_cut_before_its_end_is_text_and_one_that_lacks_only_its_closing_mark_is_a_call(name, family):
    call = _one_call(written(name, [("f", {"a": "xy"})]), family)
    for size in range(len(family.before or family.open or family.alone[0]), call.index("xy") + 2):
        parsed = read(call[:size], family)
        assert (parsed.content, parsed.calls) == (call[:size].strip(), ()), size
    cut = read(call.removesuffix(family.close), family)
    if name in HAS_TEXTS and name != "qwen3-coder":  # nothing else would say that no parameter is missing
        assert cut.calls == ()
    else:
        assert [one.name for one in cut.calls] == ["f"]


@pytest.mark.parametrize(
    "wrong", ["", "no call", "{}", '[{"a": 1}]', "f", "f {", "<", '"', "f\n\n```json\n[1]\n```", "null"]
)
def test_a_block_that_is_no_call_stays_content_and_the_next_one_is_read(marked, wrong):
    name, family = marked.name, marked
    block = f"{family.before}{family.open}{wrong}{family.close}"
    if wrong in ("f", "null") and name.startswith("glm"):
        return  # a call without arguments: names stand alone there
    parsed = read(f"{block} then {written(name, [('g', {})])}", family)
    assert (parsed.content, [call.name for call in parsed.calls]) == (f"{block} then", ["g"])


JSON_REPAIRS = {
    '{"a": "x\n\ty"}': {"a": "x\n\ty"}, '{"a": {"b": 1}}}': {"a": {"b": 1}}, '{"a": NaN}': {"a": "NaN"}, '{"a": 1e999}': {"a": 1e999},
    "null": {}, '{"a": "\\ud800\n"}': {"a": "\ud800\n"},
}  # fmt: skip


@pytest.mark.parametrize("said", JSON_REPAIRS)
@pytest.mark.parametrize("name", ["kimi-k2", "deepseek-v3", "deepseek-v3.1", "mistral-call-id", "mistral-args"])
def test_what_models_write_for_json_is_repaired(name, said):
    text = written(name, [("f", {"q": 1})]).replace('{"q": 1}', said)
    parsed = read("so " + text, BY_NAME[name])
    assert (parsed.content, [call.name for call in parsed.calls]) == ("so", ["f"])
    assert json.loads(parsed.calls[0].arguments) == JSON_REPAIRS[said] and parsed.calls[0].arguments.encode()


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_tool_that_must_be_called_is_begun_as_the_model_writes_it(name, model):
    """The prefix is a beginning of the call, with this family's marks as their tokens, and what the model adds makes the call whole."""
    made = model_of(name, model)
    arguments = {"path": "a b"}
    call = written(name, [("read_file", arguments)])
    for choice in ("required", {"type": "function", "function": {"name": "read_file"}}):
        prefix = made.prefix(request([{"role": "user", "content": "go"}], TOOLS, tool_choice=choice))
        assert call.startswith(prefix) and ("read_file" in prefix) == (choice != "required")
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=9, seed=1, prefix=prefix, is_one_call=True)
        rest = made.template.encode(call.removeprefix(prefix))
        (read_back,) = made.read(rest, "c", sampling, TOOLS).calls
        assert (read_back.name, json.loads(read_back.arguments)) == ("read_file", arguments)
        reader = made.reader(sampling)
        kept = [reader.push([token]) for token in rest]
        if rest[-1] in made.stop_ids:
            assert set(kept) == {None}, "the model itself ends its turn with the call"
            continue
        ended = next(index for index, size in enumerate(kept, 1) if size is not None)
        assert kept[ended - 1] == ended
        left = made.template.decode(rest[ended:]).strip()
        assert left in ("", made.renderer.family.behind), "the output ends with the call"


@given(own=st.text(max_size=12) | st.sampled_from(["functions.f:0", "f:3", "functions.a-b_c:12", "aB3dE6gH0"]))
def test_names_of_calls_hold_what_every_client_takes(own):
    """Letters, digits, `_`, `-`: harnesses name files after them; and the template is shown the model's own name."""
    for ids in (NUMBERED, NINE):
        name = tool_call_id("c", 0, ids.kept(own))
        assert re.fullmatch(r"[A-Za-z0-9_-]+", name) and name.startswith(tool_call_id("c", 0))
        shown = ids.shown(name)
        assert shown.removeprefix("functions.") == own.removeprefix("functions.") or not ids.kept(own)
        assert ids is NUMBERED or re.fullmatch("[A-Za-z0-9]{9}", shown)


def test_reasoning_between_the_familys_own_marks_is_set_apart():
    mistral = BY_NAME["mistral-args"]
    parsed = parse('[THINK]hm[/THINK]so[TOOL_CALLS]f[ARGS]{"a": 1}', "c", family=mistral)
    assert (parsed.reasoning, parsed.content, len(parsed.calls)) == ("hm", "so", 1)


@pytest.mark.parametrize("lead", ["", "\n", "<|python_tag|>"])
def test_a_bare_call_begins_the_content_and_others_may_follow_it(lead):
    one = written("llama-3", [("f", {"a": "x; {"})])
    assert [call.name for call in read(f"{lead}{one};\n{one}", LLAMA).calls] == ["f", "f"]
    assert [call.name for call in parse(f"hm</think>{lead}{one}", "c", True, family=LLAMA).calls] == ["f"]
    behind = read(f"I say {lead}{one}", LLAMA)
    assert behind.content == f"I say {lead}{one}" and not behind.calls


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "Bob"}', '{"name": "Bob", "age": 3}', '{"name": "Bob", "parameters": {}, "age": 3}', '{"parameters": {}}',
        '{"name": "f", "parameters": [1]}', "{", '<|python_tag|>search.call(query="x")', "<|python_", '{"a": "',
    ],
)  # fmt: skip
def test_an_answer_in_json_is_no_call(answer):
    """No mark says that it is one: it has arguments and nothing that calls have not, or it is what the harness asked for."""
    assert (read(answer, LLAMA).content, read(answer, LLAMA).calls) == (answer, ())
    stream = SaidStream(family=LLAMA)
    stream.push(answer)
    assert stream.content == ""
    plain = SaidStream(family=LLAMA)
    plain.push('Here: {"name"')
    assert plain.content == 'Here: {"name"', "what cannot be a call any more is told at once"
