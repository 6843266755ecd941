"""Claude Code, forced to compact by a small context: its compactions are classes of their own, and what follows is a context of its own (B3, B5)."""

import pytest

from tests.harness.checks import check_bit_exact, check_path, records_of
from tests.harness.jobs import JOBS, SUB_TASK, TASK, tool
from tests.harness.stack import Stack
from tests.harness.test_harnesses import Hello

pytestmark = pytest.mark.timeout(600)

ROOM_TOKENS = 10_000
"""Beyond what the first prompt takes. Half of it is what a compaction and the conversation after it need, with the tokenizer of these tests."""
COMPACTION = {
    "when": r"Your task is to create a detailed summary",
    "say": ["<summary>The greeting was written.</summary>"],
}
CONTINUED = {"when": "This session is being continued from a previous conversation", "say": ["All done."]}
FIRST = "g000000-e0"
FILL = [tool("Bash", command=f"seq {1000 * k} {1000 * k + 500}", description="fill") for k in range(1, 8)]
"""Each result takes about 2300 tokens: the fifth no longer fits."""


class Named(Hello):
    """The execution's id stands in its prompt, so that the script can tell the two of a test."""

    harness = "claude-code"

    def prepare(self, workspace):
        return f"{super().prepare(workspace)} ({self.task.task_id})"


def script(main: list[str], sub_agent: list[str]) -> list[dict]:
    first = {"when": FIRST, "say": ["Done."]}
    title = {"when": JOBS["claude-code"].side_when, "say": ["Greeting"]}
    agents = [{"when": TASK, "say": main}, {"when": SUB_TASK, "say": sub_agent}]
    return [COMPACTION, CONTINUED, first, title, *agents]


WRITE, AGENT = JOBS["claude-code"].main[0], JOBS["claude-code"].main[2]


@pytest.mark.parametrize(
    ("role", "main", "sub_agent"),
    [("main", [WRITE, *FILL, "Done."], ["unused"]), ("sub-agent", [WRITE, AGENT, "Done."], [*FILL, "It says hello."])],
    ids=["main", "sub-agent"],
)
async def test_a_forced_compaction_is_a_class_of_its_own(role, main, sub_agent, programs, model_dir, tmp_path):
    """Told that its prompt is too long, Claude Code has the conversation summarised (`main-summary`, `sub-agent-summary`) and goes on from that.
    The context before it and the one after it are two paths of the same class; all of it is on record bit by bit."""
    environment = type("Compacted", (Named,), {"path": programs})
    async with Stack(tmp_path, model_dir, script(main, sub_agent), environment) as stack:
        ended = await stack.run()
        first = check_path(stack.records(ended.execution_id), "main")[0]
        ended = await stack.run(context_tokens_max=first.prompt_tokens + ROOM_TOKENS)
        said = stack.worlds[-1].exit.tail[-2000:]
        assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "stopped", 1.0), said
        assert any("prompt is too long" in refused for refused in stack.worlds[-1].refusals)
        records = records_of(stack, ended.execution_id)
        check_bit_exact(stack, ended.execution_id)

    (summary,) = [record for record in records if record.role == f"{role}-summary"]
    assert {record.role for record in records} == {"main", "side", f"{role}-summary"} | {role}
    of_role = [record for record in records if record.role == role]
    before = [record for record in of_role if record.call_index < summary.call_index]
    after = [record for record in of_role if record.call_index > summary.call_index]
    assert len(check_path(before, role)) >= 4 and len(after) == 1
    assert after[0].parent_tokens < before[0].prompt_tokens, "a new context: the conversation before is not in it"
    assert after[0].prompt_tokens < before[-1].prompt_tokens
    assert summary.parent in {record.call_id for record in before}, (
        "it goes on from the conversation that it summarises"
    )
