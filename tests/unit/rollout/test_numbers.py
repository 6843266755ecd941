"""Numbers of tool arguments: the same number is one history, another one is another, and what a client rounds is known again (B2)."""

import json

import pytest

from services.rollout.core.normal import canonical_arguments
from services.rollout.core.session import Session

from .builders import Harness, reply_message, request, tool_message, tool_text

START = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]
ONE, OTHER, BOTH_ROUNDED = "1234567890123456789", "1234567890123456788", "1234567890123456800"


def _said(number: str) -> str:
    return tool_text("read_file", f'{{"path": {number}}}')


def _back(reply, number: str, name: str = "") -> list[dict]:
    sent = reply_message(reply, f'{{"path":{number}}}')
    if name:
        sent["tool_calls"][0]["id"] = name
    return [*START, sent, tool_message(reply, 0, "r") | ({"tool_call_id": name} if name else {})]


@pytest.mark.parametrize("name", ["", "another"])
@pytest.mark.parametrize(
    ("said", "by_javascript"),
    [
        ("9007199254740993", "9007199254740992"), ("12345678901234567890", "12345678901234567000"), ("1e20", "100000000000000000000"),
        ("-0.0", "0"), ("1234567890123456789012345", "1.2345678901234568e+24"), ("12345678901234567890.5", "12345678901234567000"),
        ("-" + ONE, "-" + BOTH_ROUNDED), ("1e20", "1e+20"), ("[1.50]", "[1.5]"),
    ],
)  # fmt: skip
def test_a_number_that_a_client_rounds_to_a_double_does_not_fork(model, said, by_javascript, name):
    """What JSON.parse and JSON.stringify make of it is what such a harness holds; also where it names its calls itself, and after a restart."""
    harness = Harness(model)
    reply = harness.call(START, _said(said))
    rebuilt = Session(harness.session.sample_id)
    rebuilt.take(harness.records[0], model)
    for text, is_same in ((by_javascript, True), ("7", False)):
        prompt = harness.session.prompt(request(_back(reply, text, name)), model)
        assert harness.goes_on(prompt) == is_same
        assert rebuilt.prompt(request(_back(reply, text, name)), model).ids.tolist() == prompt.ids.tolist()


@pytest.mark.parametrize("back", ["whole", "rounded"])
def test_two_calls_whose_numbers_are_one_double_are_two_histories(model, back):
    """Each goes on from its own tokens, also where the client rounds: the name of the call says which it is."""
    harness = Harness(model)
    replies = [harness.call(START, _said(number)) for number in (ONE, OTHER)]
    for index, (reply, number) in enumerate(zip(replies, (ONE, OTHER), strict=True)):
        prompt = harness.session.prompt(request(_back(reply, number if back == "whole" else BOTH_ROUNDED)), model)
        assert harness.goes_on(prompt, index) and number in model.template.decode(prompt.ids)
    unnamed = harness.session.prompt(request(_back(replies[0], BOTH_ROUNDED, "another")), model)
    assert BOTH_ROUNDED in model.template.decode(unnamed.ids), (
        "which of the two it was is not known: it is what was sent"
    )


@pytest.mark.parametrize("number", ["1234567890123456700", "1234567890123456790", "1234567890123456768", OTHER])
@pytest.mark.parametrize("start", [START, START[1:]])
def test_a_number_that_no_client_makes_of_the_models_is_an_edit(model, number, start):
    """The model reads what the harness holds, on the recorded path and off it."""
    harness = Harness(model)
    reply = harness.call(START, _said(ONE))
    prompt = harness.session.prompt(request([*start, *_back(reply, number)[2:]]), model)
    assert not harness.goes_on(prompt) and number in model.template.decode(prompt.ids)


def test_what_is_rounded_is_the_models_own_words_off_the_recorded_path_too(model):
    harness = Harness(model)
    reply = harness.call(START, _said(ONE))
    assert ONE in model.template.decode(harness.ids([*START[1:], *_back(reply, BOTH_ROUNDED)[2:]]))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("1.0", "1", True), ("-0", "0", True), ("1e3", "1000", True), ("0.1", "0.10", True), (ONE, OTHER, False),
        ("1e999", '"1e999"', True), ("9" * 5000, "9" * 4999 + "8", False), ("1.5", "1.25", False),
    ],
)  # fmt: skip
def test_the_same_number_has_one_form(one, other, is_same):
    forms = [canonical_arguments(f'{{"a": {number}}}') for number in (one, other)]
    assert (forms[0] == forms[1]) == is_same
    for form in forms:
        assert canonical_arguments(form) == form and json.loads(form, parse_int=str)
