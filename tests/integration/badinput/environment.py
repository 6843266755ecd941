"""A custom environment that goes wrong in the way its task's payload names; run as a process of its own."""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from gyre.env import Environment, Evidence, Score, StepResult, ToolCall, serve

ACT = {"type": "function", "function": {"name": "act", "parameters": {"type": "object", "properties": {}}}}
HUGE = 100 * 1024 * 1024
FOR_EVER_S = 3600.0
BLOCKED_S = 12
"""Longer than the tests' lease: a process that stands still is taken for dead."""


class Endless:
    """Asked for its text, it never answers."""

    def __str__(self) -> str:
        time.sleep(FOR_EVER_S)
        return ""


class Wayward(Environment):
    """`mode` is a method that misbehaves and how; without one, everything is right and the first act succeeds."""

    name = "wayward"
    milestones = {"acted": 0.3}

    def __init__(self, task) -> None:
        super().__init__(task)
        self.mode = task.payload.get("mode", "")
        if self.mode == "init raises":
            raise RuntimeError("no world could be made")
        if self.mode == "many milestones":
            self.milestones = {f"m{index:0100d}": 0.0 for index in range(100_000)}
        if self.mode == "milestone weighs text":
            self.milestones = {"acted": "much"}
        if self.mode.startswith("async "):
            self.step = self._async_step

    def tools(self) -> Any:
        return {"tools are sets": [{"type": "function", "function": {"name": "act", "strict": {1}}}]}.get(
            self.mode, [ACT]
        )

    def reset(self) -> Any:
        match self.mode:
            case "reset raises":
                raise RuntimeError("the world would not start")
            case "reset hangs":
                time.sleep(FOR_EVER_S)
            case "reset is text":
                return "go"
            case "reset holds bytes":
                return [{"role": "user", "content": b"go"}]
            case "reset is huge":
                return [{"role": "user", "content": "x" * HUGE}]
            case "reset has no role":
                return [{"role": "wizard", "content": "go"}]
        return [{"role": "user", "content": "go"}]

    def evidence(self) -> Any:
        match self.mode:
            case "evidence is huge":
                return Evidence(image_digest="x" * HUGE)
            case "evidence holds numbers":
                return Evidence(image_digest="", tool_versions={"python": 3})
        return Evidence(image_digest="sha256:0", tool_versions={"python": "3"})

    def step(self, call: ToolCall) -> Any:
        match self.mode:
            case "step raises":
                raise RuntimeError("the tool broke")
            case "step raises undecodable text":
                raise RuntimeError("no file \udcff")
            case "step exits":
                sys.exit(3)
            case "step hangs" | "step hangs, then score fails":
                time.sleep(FOR_EVER_S)
            case "step is huge":
                return StepResult(content="x" * HUGE)
            case "step never ends its observation":
                return Endless(), 0.0, True, False, {}
            case "step recurses":
                return self.step(call)
            case "step prints without end":
                for _ in range(200):
                    print("x" * 10_000)
                    print("y" * 10_000, file=sys.stderr)
            case "step changes its process":
                os.chdir("/")
                os.environ.clear()
                logging.disable(logging.CRITICAL)
                for _ in range(50):
                    threading.Thread(target=time.sleep, args=(FOR_EVER_S,), daemon=True).start()
            case "step kills its process":
                os.kill(os.getpid(), signal.SIGKILL)
            case "step is text":
                return "done"
            case "step holds bytes":
                return StepResult(content=b"done")
        return StepResult(content="done", done=True)

    async def _async_step(self, call: ToolCall) -> StepResult:
        match self.mode:
            case "async step exits":
                sys.exit(3)
            case "async step blocks its loop":
                time.sleep(FOR_EVER_S)  # noqa: ASYNC251
            case "async step cancels itself":
                raise asyncio.CancelledError
            case "async step waits for ever":
                await asyncio.sleep(FOR_EVER_S)
            case "async step leaves tasks":
                self.left = [asyncio.create_task(asyncio.sleep(FOR_EVER_S)) for _ in range(1000)]
        return StepResult(content="done", done=True)

    def score(self) -> Any:
        good: dict[str, Any] = {"outcome": 1.0, "milestones": {"acted": True}, "evidence": {"looked": 1}}
        match self.mode:
            case "score raises" | "step hangs, then score fails":
                raise RuntimeError("nothing to look at")
            case "score hangs":
                time.sleep(FOR_EVER_S)
            case "score is a number":
                return 1.0
            case "outcome is not a number":
                good["outcome"] = float("nan")
            case "outcome is 7":
                good["outcome"] = 7
            case "outcome is text":
                good["outcome"] = "1"
            case "milestone is unknown":
                good["milestones"] = {"flew": True}
            case "findings are objects":
                good["evidence"] = {"world": self}
            case "findings are infinite":
                good["evidence"] = {"seconds": float("inf")}
            case "findings are huge numbers":
                good["evidence"] = {"count": 10**40}
            case "findings are huge":
                good["evidence"] = {"log": "x" * 10_000_000}
            case "evaluation is invalid":
                good["valid"] = False
        return Score(**good)

    def close(self) -> None:
        if self.mode == "close raises":
            raise RuntimeError("would not close")


class Blocking(Wayward):
    """Holds the interpreter once, as C libraries and regular expressions do, so that not even heartbeats leave its process."""

    async def reset(self) -> list[dict[str, Any]]:
        if self.task.payload.get("mode") == "blocks":
            ctypes.PyDLL(None).sleep(BLOCKED_S)
        await asyncio.sleep(0)
        return [{"role": "user", "content": "go"}]


if __name__ == "__main__":
    kind = next((word.strip("-") for word in sys.argv if word in ("--blocking", "--deadly")), "wayward")
    serve(Blocking if kind == "blocking" else Wayward, name=kind)
