"""An environment for a process of its own: `write` adds a line to the workspace, `mail` one to a file outside, which stands for the world.

Run as a module: `python -m tests.integration.rollout.logbook --address … --state DIR`; the payload names the file outside (`mails`) and another
(`hang`) for which step 5 waits as long as it is there."""

import sys
import tempfile
import time
from pathlib import Path

from gyre.env import Environment, Score, StepResult, serve


def tool(name: str) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


class Logbook(Environment):
    name = "logbook"
    outside = frozenset({"mail"})

    def tools(self):
        return [tool("write"), tool("mail")]

    def reset(self):
        self.workspace = Path(tempfile.mkdtemp(prefix="logbook-", dir=self.task.payload["worlds"])) / "work"
        self.workspace.mkdir()
        return [{"role": "user", "content": "write and mail"}]

    def step(self, call):
        n = call.arguments["n"]
        while n == 5 and Path(self.task.payload["hang"]).exists():
            Path(self.task.payload["hang"]).with_suffix(".now").touch()
            time.sleep(0.05)
        target = Path(self.task.payload["mails"]) if call.name == "mail" else self.workspace / "log"
        with target.open("a") as file:
            file.write(f"{n}\n")
        return StepResult(content=f"{call.name} {n}", done=n == 6)

    def score(self):
        return Score(outcome=float((self.workspace / "log").read_text().split() == ["1", "3", "5"]))


if __name__ == "__main__":
    sys.argv[0] = "logbook"
    serve(Logbook, Logbook.name, record_tools=True)
