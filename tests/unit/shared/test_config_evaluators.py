"""Settings of evaluators that do not fit are refused with what would be right (D4)."""

import pytest

from gyre.config.evaluators import lower_share
from gyre.config.load import parse
from gyre.errors import ConfigError

LEARNED = {"name": "taste", "kind": "learned", "url": "http://127.0.0.1:8090/score"}


def parsed(*evaluators: dict, **trajproc):
    return parse({"model": {"path": "m"}, "trajproc": trajproc, "evaluators": list(evaluators)}, "train.toml")


def test_weights_that_keep_precedence_are_taken():
    """q = 1 − (1 − .2)(1 − .2) = .36, under the line (.7 − .3)/(1 − .3) = .571 at a milestone share of .3."""
    config = parsed(LEARNED, {**LEARNED, "name": "steps", "kind": "dense"})
    assert lower_share(config.evaluators) == pytest.approx(0.36)


@pytest.mark.parametrize(
    ("evaluators", "trajproc", "said"),
    [
        ([LEARNED, LEARNED], {}, "`taste` is named twice"),
        ([{**LEARNED, "url": ""}], {}, "needs url, e.g. http://127.0.0.1:8090/score"),
        ([{**LEARNED, "url": "ftp://x"}], {}, "needs url"),
        ([{**LEARNED, "url": "http://[x"}], {}, "needs url"),
        ([{**LEARNED, "url": "https://me:s3cret@host/score"}], {}, "name a variable in token_env instead"),
        ([{**LEARNED, "transport": "grpc"}], {}, "needs address, e.g. 127.0.0.1:9100"),
        ([{**LEARNED, "address": "127.0.0.1:1"}], {}, "does not use '127.0.0.1:1'"),
        ([{**LEARNED, "url": "http://rewards.example/score", "token_env": "T"}], {}, "in the clear .* use https"),
        ([{**LEARNED, "timeout_s": 60.0, "budget_s": 30.0}], {}, "budget_s 30 is less than timeout_s 60"),
        ([{**LEARNED, "weight": 0.0}], {}, "weight 0 would ask it and pay nothing"),
        ([{**LEARNED, "kind": "rule", "weight": 0.6}, {**LEARNED, "name": "b", "kind": "rule", "weight": 0.6}], {}, "sum to 1.2; at most 1"),
        # .571 of what rules leave open is as much as a verified success without milestones: .3 + .7·.571 = .7
        ([{**LEARNED, "weight": 0.6}], {}, "below 0.571"),
        ([{**LEARNED, "weight": 1.0}], {"milestone_share": 0.0}, "below 1"),
        ([LEARNED], {"outcome_counts": False}, "one model alone; add a rule, or set trajproc.learned_alone = true"),
        ([LEARNED, {**LEARNED, "name": "t", "kind": "rule", "required": False}], {"outcome_counts": False}, "one model alone"),
        ([{**LEARNED, "kind": "teacher"}], {}, "kind"),
        ([{**LEARNED, "tokens_env": "X"}], {}, "did you mean `evaluators\\[0\\].token_env`"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_with_what_would_be_right(evaluators, trajproc, said):
    """D4: never one model alone; a failure that a model likes never reaches a verified success."""
    with pytest.raises(ConfigError, match=said):
        parsed(*evaluators, **trajproc)


def test_a_model_alone_needs_the_explicit_switch_and_a_required_rule_needs_none():
    parsed({**LEARNED, "weight": 1.0}, outcome_counts=False, learned_alone=True)
    parsed(LEARNED, {**LEARNED, "name": "tests", "kind": "rule", "weight": 1.0}, outcome_counts=False)
