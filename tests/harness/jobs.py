"""What each harness is told to do, and what its model says: several turns with tool calls, a sub-agent where it has them, its side calls."""

import json
from typing import NamedTuple

from tests.harness.scripted import HOLD
from tests.unit.rollout.builders import tool_text

TASK = "Write hello.txt"
SUB_TASK = "check what is in the file"
WRITE, READ = "echo hello > hello.txt", "cat hello.txt"


def tool(name: str, **arguments) -> str:
    return tool_text(name, json.dumps(arguments))


class Job(NamedTuple):
    harness: str
    """Its name in programs.toml and in the roles' rules."""
    main: list[str]
    sub_agent: list[str] = []
    side_when: str = ""
    """What tells its side calls' prompts."""
    side: str = ""
    side_calls_min: int = 0

    def script(self, main: list[str] | None = None, *before: dict) -> list[dict]:
        """For the scripted engine; `before` are parts that come first."""
        parts = [*before, {"when": TASK, "say": main or self.main}]
        if self.side_when:
            parts.insert(len(before), {"when": self.side_when, "say": [self.side]})
        if self.sub_agent:
            parts.append({"when": SUB_TASK, "say": self.sub_agent})
        return parts

    def held(self) -> list[str]:
        """The main agent's outputs, the first three of which are held half-way."""
        return [HOLD + text if index < 3 else text for index, text in enumerate(self.main)]


JOBS = {
    job.harness: job
    for job in (
        Job(
            "claude-code",
            [
                "I write." + tool("Bash", command=WRITE, description="w"), tool("Bash", command="wc -c hello.txt", description="c"),
                tool("Agent", description="check", prompt=SUB_TASK, subagent_type="general-purpose"), "Done.",
            ],
            [tool("Bash", command=READ, description="r"), "It says hello."],
            r"\A.{0,400}Generate a concise, sentence-case title", '{"title": "Greeting"}', 1,
        ),
        Job(
            "codex",
            [
                "I write." + tool("exec_command", cmd=WRITE), tool("multi_agent_v1__spawn_agent", message=SUB_TASK),
                tool("exec_command", cmd="sleep 2; " + READ), "Done.",
            ],
            [tool("exec_command", cmd=READ), "It says hello."],
        ),
        Job(
            "qwen-code",
            [
                "I write." + tool("run_shell_command", command=WRITE, is_background=False),
                tool("agent", description="check", prompt=SUB_TASK, subagent_type="general-purpose"), "Done.",
            ],
            [tool("run_shell_command", command=READ, is_background=False), "It says hello."],
            r"\A.{0,400}You are now acting as the managed memory extraction subagent", "Nothing to remember.",
        ),
        Job(
            "opencode",
            [
                "I write." + tool("bash", command=WRITE, description="w"),
                tool("task", description="check", prompt=SUB_TASK, subagent_type="general"), "Done.",
            ],
            [tool("bash", command=READ, description="r"), "It says hello."],
            r"\A.{0,400}You are a title generator", "Greeting", 1,
        ),
        Job(
            "mini-swe-agent",
            [
                "I write." + tool("bash", command=WRITE), tool("bash", command=READ),
                tool("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
            ],
        ),
    )
}  # fmt: skip
