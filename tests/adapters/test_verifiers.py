"""The verifiers adapter, in an environment of its own with the real library, at the real rollout service (the example of examples/verifiers_env)."""

import pytest

from tests.adapters.stack import tool_text

pytestmark = pytest.mark.timeout(600)
COMMAND = ["-m", "examples.verifiers_env.environment"]
ADD = tool_text("add", a=10, b=20)


async def test_its_conversation_runs_through_the_gateway_and_its_rubric_is_the_score(stack, python_of):
    """Row 1 is 10 + 20. The tool is verifiers' own, carried out there; both calls are on record; .9 for the sum and .1 for the tool are 1."""
    script = [{"when": "What is 10", "say": [ADD, "It is 30."]}]
    async with stack(script, [python_of("verifiers"), *COMMAND], "sums") as running:
        name = await running.dispatch(row=1)
        ended = await running.ended(name)
        assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "stopped", 1.0), ended
        assert ended.evaluation.evidence["metrics"]["right"] == 1.0 and ended.turns == len(running.records(name)) == 2


async def test_used_up_turns_are_scored_by_the_rubric_on_what_was_said(stack, python_of):
    """B4: one turn is allowed, the tool is called in it, the gateway refuses a second: timed_out(turns), and .1 for the tool."""
    script = [{"when": "What is 10", "say": [ADD, "It is 30."]}]
    async with stack(script, [python_of("verifiers"), *COMMAND], "sums") as running:
        ended = await running.ended(await running.dispatch(turns_max=1, row=1))
        assert (ended.ending, ended.reason) == ("timed_out", "turns"), ended
        assert ended.evaluation.valid and ended.evaluation.outcome == pytest.approx(0.1)
