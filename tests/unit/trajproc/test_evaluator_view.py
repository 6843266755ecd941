"""What an evaluator is shown (B4, D4): the main agent's contexts, decoded and bounded, and the tool calls."""

import msgspec
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from gyre.config import EvaluatorConfig
from gyre.errors import Unavailable
from services.trajproc.evaluators.view import Texts, context_of, execution_of, main_leaves, tool_calls
from tests.unit.trajproc.builders import call, ended

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Texts:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="zero"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return Texts(folder)


def settings(**more) -> EvaluatorConfig:
    return EvaluatorConfig(name="taste", kind="learned", url="http://127.0.0.1:1/x", **more)


COMPACTED = [
    call([1, 2], [3], index=0),
    call([4], [5], index=1, parent=0, cut=3),
    call([9], [8], index=2, role="side"),
    call([6], [7], index=3, parent=0, cut=1),  # compacted: keeps the first token alone
]
"""Contexts of the main agent: 1 2 3 4 5, and after compaction 1 6 7."""


def test_contexts_are_put_together_from_the_records_they_hang_from():
    """B3: call 1 continues all 3 tokens of call 0, call 3 only the first."""
    by_id = {one.call_id: one for one in COMPACTED}
    assert [context_of(one, by_id).tolist() for one in COMPACTED] == [[1, 2, 3], [1, 2, 3, 4, 5], [9, 8], [1, 6, 7]]


def test_only_the_main_agents_last_calls_are_shown_and_abandoned_ones_never():
    """Call 0 is continued by call 1; call 2 is no main call; an answer that never reached the harness is none of its work."""
    assert [one.call_index for one in main_leaves(COMPACTED)] == [1, 3]
    retried = [call([1], [2], index=0, delivered=False), call([1], [3], index=1)]
    assert [one.call_index for one in main_leaves(retried)] == [1]
    assert [one.call_index for one in main_leaves([call([9], [8], role="side")])] == [0], "better than nothing"


def test_an_execution_is_shown_with_its_verdict_its_words_and_that_it_was_cut_short(texts):
    """B4: what a time-out left behind is judged, and marked."""
    shown = execution_of(ended("g000000", 0, 0.25, ending="timed_out"), COMPACTED, {"goal": 1}, settings(), texts)
    assert (shown.partial, shown.ending, shown.outcome, shown.payload) == (True, "timed_out", 0.25, {"goal": 1})
    assert [path.text for path in shown.paths] == ["one two three four five", "one six seven"]
    assert [(path.tokens, path.cut) for path in shown.paths] == [(5, False), (3, False)]
    assert not execution_of(ended("g000000", 0), COMPACTED, None, settings(), texts).partial


def test_a_long_text_loses_its_middle_and_says_so(texts):
    """1,000 tokens, 20 characters: the first and last 10 and a mark between; no more than 40 tokens are decoded."""
    long = call([1] * 999, [9])
    shown = execution_of(ended("g000000", 0), [long], None, settings(text_chars_max=20), texts)
    text = shown.paths[0].text
    assert text.startswith("one one on") and text.endswith("e one nine") and "the middle of 1000 tokens" in text
    assert shown.paths[0].cut


def test_without_texts_no_tokenizer_is_needed_and_with_them_a_missing_one_is_said(tmp_path):
    """A rule that looks at tool calls alone works without a model directory."""
    absent = Texts(tmp_path)
    assert execution_of(ended("g000000", 0), COMPACTED, None, settings(text_chars_max=0), absent).paths == []
    with pytest.raises(Unavailable, match=r"tokenizer\.json"):
        execution_of(ended("g000000", 0), COMPACTED, None, settings(), absent)


def test_tool_calls_are_in_order_and_bounded(texts):
    """Of ten calls four are shown, two from each end; an argument of 5,000 characters is cut to 2,000 and a note; a huge payload is left out."""
    calls = [msgspec.structs.replace(call([1], [2], index=i), tool_payloads={f"t{i}": "x" * 5_000}) for i in range(10)]
    shown = tool_calls(calls[::-1], 4)
    assert [one.call_id for one in shown] == ["t0", "t1", "t8", "t9"]
    assert len(shown[0].arguments) < 2_100 and "5000 characters" in shown[0].arguments
    assert execution_of(ended("g000000", 0), calls, {"x": "y" * 70_000}, settings(), texts).payload is None
