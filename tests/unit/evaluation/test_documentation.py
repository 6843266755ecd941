"""docs/evaluators.md is right: its settings are taken, its messages are those that travel, its example runs (D4)."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from examples.evaluator.evaluator import evaluate
from gyre.config.load import parse
from gyre.evaluation import Execution, ToolCall, checked, wire

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "evaluators.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def execution(**more) -> Execution:
    names = {"sample_id": "g000001-e0-a1", "execution_id": "g000001-e0", "group_id": "g000001", "attempt": 1}
    return Execution(**names, task_type="repair", ending="completed", **more)


@pytest.mark.parametrize("text", blocks("toml"))
def test_its_settings_are_taken(text):
    parse({"model": {"path": "m"}, **tomllib.loads(text)}, "docs/evaluators.md")


def test_its_request_has_exactly_the_fields_that_are_sent_and_its_answer_is_one():
    request, answer = map(json.loads, blocks("json"))
    call, path = request["tool_calls"][0], request["paths"][0]
    sent = json.loads(wire.request_json(execution(), "taste", "learned"))
    assert list(request) == list(sent)
    assert set(call) == set(ToolCall.__struct_fields__) and {"text", "cut", "tokens"} < set(path)
    assert checked(wire.finding_of_json(json.dumps(answer).encode())).score == 0.7


def test_its_function_judges_as_it_says():
    """Cut before `serve`, which does not return."""
    scope: dict = {}
    exec(blocks("python")[0].partition("\nserve(")[0], scope)
    touching = execution(tool_calls=[ToolCall(call_index=0, call_id="t", arguments='{"path": "test_a.py"}')])
    assert (scope["evaluate"](execution()).score, scope["evaluate"](touching).score) == (1.0, 0.0)
    assert scope["evaluate"](touching).evidence == {"touched": ["t"]}


def test_the_example_pays_less_for_more_turns_and_nothing_for_a_touched_test():
    """20 turns are enough: 10 turns pay 1, 40 pay half."""
    scores = [evaluate(execution(turns=turns)).score for turns in (10, 40)]
    assert scores == [1.0, 0.5]
    touching = execution(turns=1, tool_calls=[ToolCall(call_index=0, call_id="t", arguments="test_x")])
    assert evaluate(touching).score == 0.0
    lines = (ROOT / "examples" / "evaluator" / "evaluator.py").read_text().splitlines()
    assert len(lines) <= 30
