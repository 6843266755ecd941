"""An environment that shortens its history, as a harness does when contexts grow (B3)."""

import pytest

from tests.unit.env.doubles import Counter, tool_reply
from tests.unit.env.test_episode import drive


class Forgetful(Counter):
    """Keeps the task and what was said last."""

    def compact(self, messages):
        return [messages[0], *messages[-2:]]


async def test_the_model_sees_the_compacted_history_from_its_next_call_on():
    """B3: the second request is whole (task, call, result), the third has lost the first call and its result; nothing is asked before the first."""
    ending, chat, _ = await drive(Forgetful, lambda body, n: tool_reply())
    assert ending.reason == "submitted"
    assert [len(request["messages"]) for request in chat.requests] == [1, 3, 3]
    assert chat.requests[2]["messages"][-1]["content"] == "2"


@pytest.mark.parametrize("answer", [None, [], ["text"], [{"content": "x"}], [{"role": "user", "content": {1, 2}}]])
async def test_what_is_no_history_ends_the_execution_with_what_was_wrong(answer):
    """Bad input."""

    class Wrong(Counter):
        def compact(self, messages):
            return answer

    ending, _, _ = await drive(Wrong, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason) == ("failed", "environment_invalid") and "compact()" in ending.detail


async def test_an_environment_that_raises_while_it_compacts_has_failed():
    """NeMo-RL#3470: an error is an ending of its own."""

    class Broken(Counter):
        def compact(self, messages):
            raise RuntimeError("no")

    ending, _, _ = await drive(Broken, lambda body, n: tool_reply())
    assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_error", None)
