"""When milestones were first verified while an execution runs (D3, D5)."""

import time

import pytest

from gyre.env import Score, StepResult
from tests.unit.env.doubles import Counter, tool_reply
from tests.unit.env.test_episode import drive


class Watched(Counter):
    """`one` holds after the first count, `three` after the third, which ends the execution; `there` from the start; `never` never."""

    milestones = {"one": 0.1, "three": 0.1, "there": 0.1, "never": 0.1}
    asked = 0

    def verified(self) -> set[str]:
        Watched.asked += 1
        counts = {"one": 1, "three": 3, "there": 0}
        return {name for name, count in counts.items() if len(self.calls) >= count}

    def score(self) -> Score:
        return Score(outcome=1.0)


@pytest.fixture(autouse=True)
def never_asked():
    Watched.asked = 0


async def test_the_turn_of_each_milestone_is_recorded_also_of_the_last_turn():
    """D3: after `reset` and each of three turns, of which the third completes the execution: four questions."""
    ending, _, _ = await drive(Watched, lambda body, n: tool_reply())
    assert ending.reason == "submitted" and Watched.asked == 4
    assert ending.evaluation.milestone_turns == {"there": 0, "one": 1, "three": 3}


async def test_a_turn_is_a_model_call_and_not_a_tool_call():
    """D3: the first reply makes two tool calls and is one turn; counts 1 and 2 are turn 1, count 3 is turn 2."""
    pair = tool_reply() | {"tool_calls": tool_reply()["tool_calls"] * 2}
    ending, _, _ = await drive(Watched, lambda body, n: pair if n == 1 else tool_reply())
    assert ending.evaluation.milestone_turns == {"there": 0, "one": 1, "three": 2}


async def test_an_environment_that_does_not_say_is_not_asked():
    """D5: the method is optional."""
    ending, _, _ = await drive(Counter, lambda body, n: tool_reply())
    assert ending.evaluation.valid and ending.evaluation.milestone_turns == {}


async def test_once_all_milestones_were_seen_nobody_asks_any_more():
    class All(Watched):
        def verified(self):
            super().verified()
            return set(self.milestones)

    ending, _, _ = await drive(All, lambda body, n: tool_reply())
    assert Watched.asked == 1 and set(ending.evaluation.milestone_turns.values()) == {0}


async def test_a_question_that_fails_is_asked_again_and_harms_nobody():
    """D5: it raises after the first turn, so `one` is recorded with the second."""

    class Failing(Watched):
        def verified(self):
            if len(self.calls) == 1:
                raise OSError("busy")
            return super().verified()

    ending, _, _ = await drive(Failing, lambda body, n: tool_reply())
    assert ending.reason == "submitted" and ending.evaluation.milestone_turns["one"] == 2


@pytest.mark.parametrize(
    "answer, message", [({"flew"}, "'flew'"), ("one", "not str"), (None, "not NoneType"), ([1], "'1'")]
)
async def test_rubbish_for_an_answer_is_said_to_be_so(answer, message):
    """Bad input: an ending of its own with what was wrong, never a reward."""

    class Wrong(Watched):
        def verified(self):
            return answer

    ending, _, _ = await drive(Wrong, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_invalid", None)
    assert message in ending.detail


async def test_a_question_that_hangs_is_a_time_out_like_a_step_that_hangs():
    """B4: what was left behind is scored."""

    class Hanging(Watched):
        def step(self, call):
            super().step(call)
            return StepResult(content="on")

        def verified(self):
            if len(self.calls) == 2:
                time.sleep(1.5)
            return super().verified()

    ending, _, _ = await drive(Hanging, lambda body, n: tool_reply(), wall_s=0.5)
    assert (ending.ending, ending.reason, ending.evaluation.valid) == ("timed_out", "wall", True)
