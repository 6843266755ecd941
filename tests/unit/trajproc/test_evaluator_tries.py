"""Time-outs, back-off and budget of one question (B4)."""

import asyncio

import pytest

from gyre.clock import ManualClock
from gyre.config import EvaluatorConfig
from gyre.errors import ConfigError, Unavailable
from gyre.evaluation import Finding
from services.trajproc.evaluators.clients import token_of
from services.trajproc.evaluators.tries import ask_within_budget


def settings(**more) -> EvaluatorConfig:
    return EvaluatorConfig(name="taste", kind="learned", url="http://127.0.0.1:1/x", **more)


class Answers:
    """Answers one after the other: a Finding is given, an exception raised; each try takes `lasts_s` of the manual clock."""

    def __init__(self, clock: ManualClock, *answers, lasts_s: float = 0.0) -> None:
        self.clock, self.answers, self.lasts_s, self.slept_s = clock, list(answers), lasts_s, []

    async def ask(self) -> Finding:
        self.clock.advance(self.lasts_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.clock.advance(seconds)


async def test_it_is_asked_again_with_growing_pauses_until_it_answers():
    """Two failures, then .7: pauses of .5 and 1 s, the third try counts."""
    clock = ManualClock()
    answers = Answers(clock, Unavailable("down"), Finding(score=0.5, valid=False), Finding(score=0.7))
    answer = await ask_within_budget(answers.ask, settings(), clock, answers.sleep)
    assert (answer.finding.score, answer.tries, answer.took_s, answers.slept_s) == (0.7, 3, 1.5, [0.5, 1.0])


async def test_tries_and_budget_are_bounds_and_the_last_failure_is_told():
    """5 tries; or a budget of 4 s with tries of 1 s: 1 + .5 + 1 + 1 = 3.5 s, the third try is the last that begins inside it."""
    clock = ManualClock()
    answers = Answers(clock, Unavailable("down"))
    answer = await ask_within_budget(answers.ask, settings(), clock, answers.sleep)
    assert (answer.finding, answer.tries, answer.detail, answers.slept_s) == (None, 5, "down", [0.5, 1.0, 2.0, 4.0])
    slow = Answers(clock, Unavailable("down"), lasts_s=1.0)
    answer = await ask_within_budget(slow.ask, settings(budget_s=4.0, timeout_s=4.0), clock, slow.sleep)
    assert (answer.tries, answer.took_s) == (3, pytest.approx(4.5)) and slow.slept_s == [0.5, 1.0, 0.0]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.1, 1.1])
async def test_a_score_that_is_no_number_in_its_bounds_is_a_failed_try(score):
    """B4: NaN in a reward would be NaN in every weight of the model."""
    clock = ManualClock()
    answers = Answers(clock, Finding(score=score))
    answer = await ask_within_budget(answers.ask, settings(tries=1), clock, answers.sleep)
    assert answer.finding is None and "number from 0 to 1" in answer.detail


async def test_what_hangs_is_given_up_after_its_time_out():
    """The question is cancelled, so it cannot answer into the next."""
    cancelled = []

    async def hang() -> Finding:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    answer = await ask_within_budget(hang, settings(tries=1, timeout_s=0.01), ManualClock())
    assert answer.finding is None and answer.detail == "no answer within 0.01 s" and cancelled == [True]


async def test_the_token_is_in_no_word_about_an_error():
    """A server that sends its request back would put it into the books."""
    clock = ManualClock()
    answers = Answers(clock, Unavailable("status 401: you sent Bearer s3cret"))
    answer = await ask_within_budget(answers.ask, settings(tries=1), clock, answers.sleep, secret="s3cret")
    assert answer.detail == "status 401: you sent Bearer [token]"
    refused = Answers(clock, Finding(score=0.5, valid=False, detail="x" * 497 + "s3cret"))
    answer = await ask_within_budget(refused.ask, settings(tries=1), clock, refused.sleep, secret="s3cret")
    assert "s3c" not in answer.detail, "no part of it is left where a text is cut"


async def test_the_token_is_in_no_answer_either():
    """A server that adds its request's headers to its evidence would put the token into the books of every sample."""
    clock = ManualClock()
    evidence = {"headers": {"authorization": "Bearer s3cret", "s3cret": [1, {"again": "s3cret"}]}}
    answers = Answers(clock, Finding(score=0.5, evidence=evidence, looked_at=["s3cret"], detail="by s3cret"))
    found = (await ask_within_budget(answers.ask, settings(), clock, answers.sleep, secret="s3cret")).finding
    headers = {"authorization": "Bearer [token]", "[token]": [1, {"again": "[token]"}]}
    assert (found.evidence, found.looked_at, found.detail) == ({"headers": headers}, ["[token]"], "by [token]")


def test_a_token_variable_that_is_not_set_is_named_at_the_start(monkeypatch):
    """E: not at the first question, hours later."""
    monkeypatch.delenv("REWARD_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="REWARD_TOKEN is not set"):
        token_of(settings(token_env="REWARD_TOKEN"))
    monkeypatch.setenv("REWARD_TOKEN", "s3cret")
    assert token_of(settings(token_env="REWARD_TOKEN")) == "s3cret" and token_of(settings()) == ""
    monkeypatch.setenv("REWARD_TOKEN", "s3cret\n")  # as a file's content is
    assert token_of(settings(token_env="REWARD_TOKEN")) == "s3cret"
    monkeypatch.setenv("REWARD_TOKEN", "s3\ncret")
    with pytest.raises(ConfigError, match="printable ASCII") as caught:
        token_of(settings(token_env="REWARD_TOKEN"))
    assert "cret" not in str(caught.value)
