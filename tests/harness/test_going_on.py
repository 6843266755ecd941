"""Real harnesses whose environment's process is killed with -9 in mid-session, and which go on from their snapshots (C2, C3, C4)."""

import pytest

from gyre.records import ExecutionStarted
from services.rollout.core.template import ChatTemplate
from tests.harness.checks import check_bit_exact, check_path, records_of
from tests.harness.jobs import JOBS, TASK, tool
from tests.harness.scripted import HOLD
from tests.harness.stack import Stack

pytestmark = pytest.mark.timeout(600)

SHELL = {
    "claude-code": lambda command: tool("Bash", command=command, description="w"),
    "codex": lambda command: tool("exec_command", cmd=command),
    "qwen-code": lambda command: tool("run_shell_command", command=command, is_background=False),
    "opencode": lambda command: tool("bash", command=command, description="w"),
}
"""How each runs a command."""


def append(harness: str, word: str) -> str:
    return SHELL[harness](f"echo {word} >> hello.txt")


@pytest.mark.parametrize("harness", list(SHELL))
async def test_a_harness_goes_on_from_its_snapshot_after_kill_9(harness, programs, model_dir, tmp_path, monkeypatch):
    """Killed in the fifth call of its main agent, with a snapshot behind and at least one turn since. The next attempt's harness knows what was said
    until then and no more, has the file as it was then, and finishes; the records of its calls are exact."""
    monkeypatch.setenv("PATH", programs)
    monkeypatch.setenv("GYRE_ENVIRONMENT_STATE", str(tmp_path / "state"))
    words = ["one", "two", "three", "four"]
    said = [
        *(append(harness, word) for word in words),
        HOLD + append(harness, "never"),
        append(harness, "last"),
        "Done.",
    ]
    async with Stack(tmp_path, model_dir, JOBS[harness].script(said), None) as stack:
        where = ("--address", stack.test.folder.endpoint("rollout"), "--key", stack.test.environment_key)
        command = ("tests.harness.serving", "--harness", harness, *where)
        process = await stack.test.start(*command)
        name = await stack.dispatch()
        await stack.held(1)
        process.kill()
        await process.wait()
        await stack.test.start(*command)
        ended = await stack.ended(name)
        evidence = ended.evaluation.evidence
        assert (ended.attempt, ended.ending, ended.reason) == (2, "completed", "stopped"), ended
        assert ended.evaluation.outcome == 1.0, evidence
        kept = evidence["harness"]["snapshots"]
        assert ended.rollback_turns == kept["lost_turns"] >= 1 and kept["turns_before"] == 3
        first, second = stack.test.of(ExecutionStarted, execution_id=name)
        assert (first.is_replay, second.is_replay) == (False, True) and second.dependency_snapshot.startswith(
            "snapshot:"
        )
        records = [record for record in records_of(stack, name) if record.attempt == 2]
        main = check_path(records, "main")
        assert len(main) == 2 and main[0].parent == ""
        check_bit_exact(stack, name, attempt=2)
        prompts = {note["call_id"]: note["prompt_ids"] for note in stack.notes()}
        known = ChatTemplate.load(model_dir).decode(prompts[main[0].call_id])
        kept_words = [word for word in words if f"echo {word} " in known]
        assert TASK in known and "echo never" not in known and 1 <= len(kept_words) < len(words)
        assert evidence["lines"] == [*kept_words, "last"]
