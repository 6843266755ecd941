"""Roles of calls by header, rules and default (B5), against what real harnesses sent.

tests/data/harness_calls holds requests of unmodified harnesses, shortened; each says which role it has and why.
"""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre.config import RoleRule, RolloutConfig
from gyre.config.sections.rollout import HARNESSES
from services.rollout.core.anthropic import parse_messages_request
from services.rollout.core.classify import Classifier, Features, Verdict, features
from services.rollout.core.request import parse_request
from services.rollout.core.responses import parse_responses_request
from services.trajproc.core.roles import TRAINED_ROLES

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = (ROOT / "services" / "rollout" / "core" / "role_rules.toml").read_text()
RULES = msgspec.convert(tomllib.loads(SHIPPED)["rules"], list[RoleRule])
PARSERS = {
    "/v1/messages": ("messages", parse_messages_request),
    "/v1/responses": ("responses", parse_responses_request),
    "/v1/chat/completions": ("chat", parse_request),
}


def captured() -> list:
    found = []
    for file in sorted((ROOT / "tests" / "data" / "harness_calls").glob("*.json")):
        data = json.loads(file.read_text())
        found += [
            pytest.param(data["harness"], call, id=f"{data['harness']}: {call['what']}") for call in data["calls"]
        ]
    return found


def features_of(call: dict) -> Features:
    endpoint, parse = PARSERS[call["path"].partition("?")[0]]
    return features(parse(json.dumps(call["body"]).encode()), endpoint, call["headers"])


def classifier(*rules: dict, **config) -> Classifier:
    return Classifier(RolloutConfig(role_rules=msgspec.convert(rules, list[RoleRule]), **config), SHIPPED)


def call(**changes) -> Features:
    """A call of no harness that is known."""
    fields = {
        "endpoint": "chat", "headers": {"user-agent": "OpenAI/Python 2.20.0"}, "system": "You mend things.", "first_user": "go",
        "last_user": "go", "tools": frozenset({"bash"}), "messages": 1, "max_tokens": None,
    }  # fmt: skip
    return Features(**{**fields, **changes})


@pytest.mark.parametrize(("harness", "sent"), captured())
def test_a_captured_call_has_its_role_and_its_reason(harness, sent):
    """Roles as the harness means them: known from what was asked of it when the call was captured."""
    assert classifier().role_of(features_of(sent)) == Verdict(sent["role"], sent["rule"], harness)


@pytest.mark.parametrize(("harness", "sent"), captured())
def test_no_call_of_a_harness_is_one_of_another(harness, sent):
    """Under another harness's rules nothing becomes main: they are asked of their own harness's calls only."""
    for other in set(HARNESSES) - {harness}:
        assert classifier(harness=other).role_of(features_of(sent)).role != "main"


def test_every_rule_said_to_be_seen_has_a_captured_call_and_every_harness_its_rules():
    """The comment over a rule says where it is from; `seen` must be true."""
    decided = {parameter.values[1]["rule"] for parameter in captured()}
    assert decided <= {rule.name for rule in RULES}
    blocks = SHIPPED.split("\n\n")
    seen = {rule.name for rule in RULES for block in blocks if f'"{rule.name}"' in block and "# seen" in block}
    assert seen <= decided, f"never captured: {sorted(seen - decided)}"
    assert {rule.harness for rule in RULES} == set(HARNESSES) == set(tomllib.loads(SHIPPED)["signatures"])
    assert all(rule.name.startswith(f"{rule.harness}/") for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_a_shipped_rule_to_a_trained_role_says_what_makes_the_call_one():
    """Never what is merely left over: a text or a header of the harness's own, beyond its user agent."""
    for rule in RULES:
        if rule.role in TRAINED_ROLES:
            assert rule.system or rule.last_user or rule.headers, rule.name


words = st.text(alphabet="abcY u.are-[]*", max_size=30)


@settings(deadline=None)
@given(
    st.builds(
        Features, endpoint=st.sampled_from(["chat", "messages", "responses"]),
        headers=st.fixed_dictionaries({"user-agent": st.sampled_from(
            ["", "claude-cli/2.1.197 (external, cli)", "codex_exec/0.171.0", "QwenCode/0.15.10", "opencode/1.18.33", "x"]
        )}),
        system=words, first_user=words, last_user=words, tools=st.frozensets(st.sampled_from(["bash", "Agent", "task"])),
        messages=st.integers(1, 9), max_tokens=st.none() | st.integers(1, 9),
    )
)  # fmt: skip
def test_what_no_rule_fits_is_unknown_and_never_guessed(sent):
    """A call with a harness's user agent and anything else: unknown, though the harness is known."""
    verdict = classifier().role_of(sent)
    assert (verdict.role, verdict.rule) == ("unknown", "")


def test_a_call_that_lost_what_marks_it_is_not_trained():
    """What a new version of a harness may do: with other prompts and headers of its own, its main and side calls are unknown alike."""
    for parameter in captured():
        sent = features_of(parameter.values[1])
        agent = {"user-agent": sent.headers["user-agent"]}
        changed = replace(sent, headers=agent, system="A new prompt", first_user="go", last_user="go")
        assert classifier().role_of(changed).role == "unknown", parameter.id


def test_the_order_is_header_then_the_users_rules_then_the_shipped_ones_then_the_default():
    """Each one taken away shows the next."""
    main = next(p.values[1] for p in captured() if p.values[1]["rule"] == "opencode/main")
    sent = features_of(main)
    named = replace(sent, headers={**sent.headers, "x-gyre-role": "sub-agent"})
    mine = {"name": "mine/planner", "role": "side", "harness": "opencode", "tools_with": ["task"]}
    with_rule = classifier(mine, role_default="main")
    assert with_rule.role_of(named) == Verdict("sub-agent", "header", "opencode")
    assert with_rule.role_of(sent) == Verdict("side", "mine/planner", "opencode")
    assert classifier(role_default="main").role_of(sent) == Verdict("main", "opencode/main", "opencode")
    assert classifier(role_default="main").role_of(call()) == Verdict("main", "default", "")
    assert classifier().role_of(call()) == Verdict("unknown", "", "")


def test_the_first_of_the_users_rules_that_fits_stands():
    first = {"name": "a", "role": "side", "tools": "none"}
    second = {"name": "b", "role": "main"}
    rules = classifier(first, second)
    assert rules.role_of(call()).rule == "b" and rules.role_of(call(tools=frozenset())).rule == "a"


def test_a_header_that_names_no_role_is_unknown():
    """A misspelt header is no reason to look further: whoever sends it means to decide."""
    sent = call(headers={"x-gyre-role": "mian"})
    assert classifier(role_default="main").role_of(sent) == Verdict("unknown", "header", "")


def test_a_harness_can_be_named_by_header_or_configuration():
    """For calls that do not show it; then its rules are asked."""
    rule = {"name": "mine/main", "role": "main", "harness": "mine", "system": "mend"}
    rules = classifier(rule, harness="mine")
    assert rules.role_of(call()) == Verdict("main", "mine/main", "mine")
    by_header = call(headers={"x-gyre-harness": "qwen-code"}, system="You are Qwen Code, an interactive CLI agent")
    assert rules.role_of(by_header) == Verdict("main", "qwen-code/main", "qwen-code")


@pytest.mark.parametrize(
    ("conditions", "fitting", "other"),
    [
        ({"endpoint": "messages"}, {"endpoint": "messages"}, {"endpoint": "chat"}),
        ({"headers": {"X-Mine": "^a"}}, {"headers": {"x-mine": "abc"}}, {"headers": {}}),
        ({"system": "^Second"}, {"system": "First\nSecond"}, {"system": "First Second"}),
        ({"system": r"\AFirst"}, {"system": "First\nSecond"}, {"system": "Second\nFirst"}),
        ({"system": "end$"}, {"system": "x" * 100_000 + "the end"}, {"system": "the end" + "x" * 100_000}),
        ({"first_user": "hi"}, {"first_user": "oh hi"}, {"first_user": "", "last_user": "hi"}),
        ({"last_user": "hi"}, {"last_user": "oh hi"}, {"first_user": "hi", "last_user": ""}),
        ({"tools_with": ["a", "b"]}, {"tools": frozenset("abc")}, {"tools": frozenset("ac")}),
        ({"tools_without": ["a", "b"]}, {"tools": frozenset("c")}, {"tools": frozenset("bc")}),
        ({"tools": "none"}, {"tools": frozenset()}, {"tools": frozenset("a")}),
        ({"tools": "some"}, {"tools": frozenset("a")}, {"tools": frozenset()}),
        ({"max_tokens_max": 5}, {"max_tokens": 5}, {"max_tokens": 6}),
        ({"max_tokens_max": 5}, {"max_tokens": 1}, {"max_tokens": None}),
        ({"messages_max": 2}, {"messages": 2}, {"messages": 3}),
    ],
)
def test_each_condition_of_a_rule(conditions, fitting, other):
    rules = classifier({"name": "mine", "role": "main", **conditions})
    assert rules.role_of(call(**fitting)).role == "main"
    assert rules.role_of(call(**other)).role == "unknown"
