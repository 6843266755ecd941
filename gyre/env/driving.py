"""Environments whose agent asks the model by itself: black boxes, which only have to be started, watched and judged.

    reset ──▶ drive(access, limits, wall) ── the agent ⇄ gateway ──▶ Over ──▶ score ──▶ close

The episode hands over where the model is and how long there is; turns are the gateway's to count.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gyre.env.ends import Limits, Over
from gyre.env.environment import Environment, StepResult, ToolCall
from gyre.env.trail import Trail
from gyre.env.wall import WallClock


class Endpoint:
    """Where the model is at present: an object that is asked, and that tells when it is elsewhere."""

    def __init__(self, url: str = "") -> None:
        """Up to and with `/v1`."""
        self._url = url
        self._moved = asyncio.Event()

    def __call__(self) -> str:
        return self._url

    def move(self, url: str) -> None:
        """The same once more changes nothing."""
        if url != self._url:
            self._url = url
            self._moved.set()
            self._moved = asyncio.Event()

    async def moved(self) -> None:
        """Returns when it is elsewhere than now."""
        await self._moved.wait()


@dataclass(frozen=True, slots=True)
class Access:
    """The model endpoint of one attempt."""

    api_base: Callable[[], str]
    """URL up to and with `/v1`. Asked before each try: a gateway may come back at another address."""
    api_key: str
    """Opens this attempt's model calls and nothing else."""
    model: str = "policy"
    output_tokens_max: int = 0
    """Of one reply; 0: not known."""
    traceparent: str = ""
    sampling: dict[str, Any] = field(default_factory=dict)
    """As assigned: temperature, top_p, max_tokens."""
    complete: Callable[[list[dict], list[dict], WallClock], Awaitable[dict[str, Any]]] | None = None
    """`ChatModel.complete`, for who has no client of his own."""


class SelfDriven(Environment):
    """`tools` and `step` are never asked for: the agent has its own."""

    trail: Trail | None = None
    """Where snapshots of `tree` go, and what an earlier attempt left there: set before `reset` where `serve` was given a folder for it and the
    environment `can_go_on`."""

    @property
    def can_go_on(self) -> bool:
        """The agent can be started in the middle of its work: it has notes of its own, in `tree`, and a way to go on from them."""
        return False

    @property
    def tree(self) -> Path:
        """The folder that holds all of the agent's files, of which snapshots are taken. The folder around it must be ours."""
        raise NotImplementedError(f"{type(self).__name__} keeps no tree")

    @property
    def place(self) -> str:
        """Where the agent is, for `move`."""
        return ""

    def move(self, place: str) -> None:
        """Before `reset` of an attempt that goes on: be where the earlier one was. Raises Conflict where that is taken."""

    @abstractmethod
    async def drive(self, access: Access, limits: Limits, wall: WallClock) -> Over:
        """Let the agent do the task; how it ended. Must return soon after `wall` has ended, with nothing of the agent left running, and end the agent
        too when it is cancelled. Raises what fails the execution (environment_error)."""

    def tools(self) -> list[dict[str, Any]]:
        return []

    def step(self, call: ToolCall) -> StepResult:
        return StepResult(content="error: the agent carries out its own tool calls", error=True)
