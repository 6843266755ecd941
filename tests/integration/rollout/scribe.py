"""A harness's environment for a process of its own, whose agent is to write a log.

Run as a module: `python -m tests.integration.rollout.scribe --address … --state DIR`."""

import sys
from pathlib import Path

from gyre.env import Score, serve
from gyre.env.harness import Exit, HarnessEnvironment, Program
from gyre.env.snapshots.spacing import Spacing

AGENT = [sys.executable, str(Path(__file__).parents[2] / "unit" / "env" / "harness" / "noting_agent.py")]

SPACING_TURNS = 3
"""What the law says of turns that take no time is more than the task has."""


class Scribe(HarnessEnvironment):
    name = "scribe"
    program = Program(
        command=[*AGENT, "{prompt}"],
        goes_on=[*AGENT, "--continue", "Go on."],
        environment={"MODEL_URL": "{api}", "MODEL_KEY": "{key}"},
    )

    def prepare(self, workspace: Path) -> str:
        (workspace / "log").write_text("")
        return "Write the log."

    def evaluate(self, workspace: Path, ended: Exit) -> Score:
        lines = (workspace / "log").read_text().splitlines()
        numbers, places = [line.split()[0] for line in lines], {line.split()[1] for line in lines}
        done = numbers == [str(number) for number in range(1, len(lines) + 1)]
        return Score(outcome=float(done and len(places) == 1), evidence={"log": lines})


if __name__ == "__main__":
    sys.argv[0] = "scribe"
    Spacing.interval_turns = lambda self: SPACING_TURNS
    serve(Scribe, Scribe.name)
