"""The tools of an MCP server as an environment's: `python -m examples.mcp_env.environment --address HOST:PORT --key KEY`.

The task is to note a word under a name; what is judged is what the server says is noted, not what the model says.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gyre.env import Score, Task, serve
from gyre.env.mcp import McpEnvironment, McpError, McpServer

SERVER = Path(__file__).with_name("server.py")
WORDS = ("anchor", "basket", "candle", "dragon")


class Notes(McpEnvironment):
    name = "notes"
    servers = {"notes": McpServer(command=(os.environ.get("MCP_PYTHON", sys.executable), str(SERVER)))}

    @property
    def word(self) -> str:
        return WORDS[self.task.seed % len(WORDS)]

    def first(self):
        return [{"role": "user", "content": f"Note the word {self.word} under the name `word`."}]

    async def score(self) -> Score:
        try:
            said = await self.clients["notes"].call("read", {"name": "word"})
        except McpError:
            said = {"content": [], "isError": True}
        found = "" if said.get("isError") else said["content"][0]["text"]
        return Score(outcome=float(found == self.word), evidence={"found": found})


def tasks(split: str, count: int, seed: int) -> Iterator[Task]:
    for index in range(count):
        number = 2 * (seed * 1_000_003 + index) + (split == "heldout")
        yield Task(task_id=f"notes-{split}-{number}", task_type="notes", seed=number)


if __name__ == "__main__":
    serve(Notes, name=Notes.name)
