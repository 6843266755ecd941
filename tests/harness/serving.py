"""A harness's environment as a process of its own, which can be killed: `python -m tests.harness.serving --harness NAME --address … --state DIR`."""

import argparse
import sys
from pathlib import Path

from gyre.env import Score, serve
from gyre.env.harness import Exit, HarnessEnvironment
from gyre.env.snapshots.spacing import Spacing
from tests.harness.jobs import TASK
from tests.harness.stack import ENVIRONMENT

SPACING_TURNS = 3
"""What the law says of a model that answers at once is more than these tasks have."""


class Append(HarnessEnvironment):
    """hello.txt is to be written, line by line."""

    name = ENVIRONMENT

    def prepare(self, workspace: Path) -> str:
        (workspace / "notes.md").write_text("Greetings live in hello.txt.\n")
        return TASK

    def evaluate(self, workspace: Path, ended: Exit) -> Score:
        file = workspace / "hello.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return Score(outcome=float(lines[-1:] == ["last"]), evidence={"lines": lines, "said": ended.tail[-2000:]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--harness")
    options, sys.argv[1:] = parser.parse_known_args()
    Spacing.interval_turns = lambda self: SPACING_TURNS
    serve(type("AppendBy", (Append,), {"harness": options.harness}), ENVIRONMENT, slots=2)
