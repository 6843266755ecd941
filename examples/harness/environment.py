"""The job of examples/repair, done by somebody else's agent: `python -m examples.harness.environment --harness claude-code`.

The agent gets a small package with one fault, its own tools and no hint of ours; what counts is that the tests pass as they were given.
"""

import argparse
import sys
from pathlib import Path

from examples.repair.packages import TEST_FILE, make_package
from gyre.env import Score, serve
from gyre.env.harness import Bounds, Exit, HarnessEnvironment

NAME = "mend"
PROMPT = (
    f"The tests in {TEST_FILE} fail (python3 -m unittest). Find the fault, mend it, and leave the tests as they are."
)


class Mend(HarnessEnvironment):
    name = NAME
    harness = "mini-swe-agent"
    bounds = Bounds(cpu_s=600, memory_bytes=4 * 2**30)

    def prepare(self, workspace: Path) -> str:
        self.package = make_package(self.task.seed)
        for name, text in self.package.files.items():
            (workspace / name).write_text(text)
        return PROMPT

    async def evaluate(self, workspace: Path, ended: Exit) -> Score:
        found = await self.tests({TEST_FILE: self.package.files[TEST_FILE]})
        return Score(outcome=float(found.all_passed), evidence={"passed": found.passed, "failures": found.failures})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--harness", default=Mend.harness)
    options, sys.argv[1:] = parser.parse_known_args()
    serve(type("MendBy", (Mend,), {"harness": options.harness}), NAME, slots=2)


if __name__ == "__main__":
    main()
