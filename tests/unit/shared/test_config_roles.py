"""Rules for the roles of calls: refused where wrong, with what would be right (B5)."""

import pytest

from gyre.config import load, store
from gyre.config.load import parse
from gyre.errors import ConfigError

RULE = {"name": "mine/planner", "role": "sub-agent"}


def config(*rules: dict, **rollout):
    return parse({"model": {"path": "m"}, "rollout": {"role_rules": list(rules), **rollout}}, "x.toml")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"role": "sub_agent"}, r"`role` is `sub_agent`; did you mean `sub-agent`\?.*role_rules\[0\]"),
        ({"role": "planner"}, "known: main, main-summary, sub-agent, sub-agent-summary, side, unknown"),
        ({"system": "You are (a planner"}, r"`system` of rule `mine/planner` is no regular expression: missing \).*write 'You are \\\(a planner'"),
        ({"headers": {"x-kind": "*"}}, "`x-kind` of rule `mine/planner` is no regular expression: nothing to repeat"),
        ({"name": " "}, "`name` is empty"),
        ({"endpoint": "response"}, "did you mean `responses`"),
        ({"tools": "no"}, "known: any, some, none|did you mean `none`"),
        ({"harness": "claude"}, r"did you mean `claude-code`"),
        ({"harness": "mine"}, "known: claude-code, codex, qwen-code, opencode, mini-swe-agent, aider"),
        ({"sytem": "x"}, r"rollout\.role_rules\[0\]\.sytem.*did you mean `rollout\.role_rules\[0\]\.system`"),
        ({"messages_max": -1}, "messages_max"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_what_would_be_right(rule, said):
    with pytest.raises(ConfigError, match=said):
        config({**RULE, **rule})


def test_names_of_rules_tell_them_apart_and_the_default_is_a_role():
    with pytest.raises(ConfigError, match="several rules are named mine/planner"):
        config(RULE, RULE)
    with pytest.raises(ConfigError, match="`role_default` is `mian`; did you mean `main`"):
        config(role_default="mian")


def test_a_harness_of_the_users_own_is_named_by_the_configuration():
    assert config({**RULE, "harness": "mine"}, harness="mine").rollout.role_rules[0].harness == "mine"


def test_a_harness_may_be_named_by_an_environment():
    environments = [{"name": "environment", "harness": "mine"}]
    made = parse(
        {
            "model": {"path": "m"},
            "environments": environments,
            "rollout": {"role_rules": [{**RULE, "harness": "mine"}]},
        },
        "x",
    )
    assert made.environments[0].harness == made.rollout.role_rules[0].harness


def test_rules_survive_the_stored_configuration(tmp_path):
    """What services read at start is what the user wrote: order, headers, every field."""
    rules = [
        {**RULE, "headers": {"x-kind": "^plan$"}, "tools_with": ["a"], "max_tokens_max": 5},
        {"name": "b", "role": "main"},
    ]
    made = config(*rules)
    store(made, tmp_path / "resolved.toml")
    assert load(tmp_path / "resolved.toml").rollout == made.rollout
