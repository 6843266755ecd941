"""One execution's way out: every call beyond its world is recorded, counted, bounded by a quota, and answered from the record where
the world went back.

The record is the execution's journal (gyre.env.recording), the same that holds its turns, so a call that a tool makes by way of HTTP is repeated with
that tool and nothing else. Calls of one execution are made one after the other: their order is what a replay goes by.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from gyre.env.environment import StepResult, ToolCall
from gyre.env.recording import Departed, Journal
from gyre.errors import GyreError
from gyre.telemetry import span

CALL_S = 120.0
"""An exchange that takes longer has failed."""
WAITING_MAX = 64
"""Calls of one execution that wait for their turn; more are refused."""


Exchange = Callable[[], Awaitable[tuple[str, bool]]]


class QuotaUsedUp(GyreError):
    """The execution has made its calls."""

    code = "quota_used_up"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a call led to, in the form that goes on record."""

    content: str
    is_error: bool = False
    is_repeated: bool = False
    """From the record; the world outside was not asked."""


class Gate:
    """Shared by all forms (HTTP, MCP) of one execution."""

    def __init__(self, journal: Callable[[], Journal], call_s: float = CALL_S, traceparent: str = "") -> None:
        """`journal` is asked at each call: an attempt has another one once its world is up. Until it has begun nothing is recorded or repeated.
        `traceparent`: of the execution, whose trace has a span of each call."""
        self._journal, self._call_s, self._traceparent = journal, call_s, traceparent
        self._turn = asyncio.Lock()
        self._waiting = 0
        self.made = 0
        """Calls that went out."""
        self.departed = ""
        """How a call departed from the record, where one did: the execution cannot go on."""

    @property
    def quota_left(self) -> int:
        """-1: any number."""
        return self._journal().quota_left

    async def call(
        self, name: str, arguments: dict[str, Any], carry_out: Exchange, failed: Callable[[str], str]
    ) -> Answer:
        """`carry_out` says (content, whether it is an error); `failed` is the content of a call that took too long. What went wrong is on record like
        any other answer. Raises QuotaUsedUp, Departed."""
        if self._waiting >= WAITING_MAX:
            raise QuotaUsedUp(f"{WAITING_MAX} calls of this execution wait already")
        self._waiting += 1
        try:
            # What is said stays on the tape, redacted; a trace has the name and how it went.
            with span(f"outside {name}", self._traceparent) as timed:
                async with self._turn:
                    timed.add_event("its turn")
                    answer = await self._call(name, arguments, carry_out, failed)
                timed.set_attribute("gyre.outside.failed", answer.is_error)
                timed.set_attribute("gyre.outside.repeated", answer.is_repeated)
                timed.set_attribute("gyre.outside.quota_left", self.quota_left)
                return answer
        finally:
            self._waiting -= 1

    async def _call(
        self, name: str, arguments: dict[str, Any], carry_out: Exchange, failed: Callable[[str], str]
    ) -> Answer:
        if self.departed:
            raise Departed(self.departed)
        journal, said = self._journal(), []

        async def out() -> StepResult:
            self.made += 1
            try:
                async with asyncio.timeout(self._call_s):
                    content, is_error = await carry_out()
            except TimeoutError:
                content, is_error = failed(f"no answer within {self._call_s:g} s"), True
            said.append(Answer(content=content, is_error=is_error))
            return StepResult(content=content, error=is_error)

        # What belongs to a tool that is itself on record goes with it, and what `reset` does is done again by every attempt.
        if journal.checkpoint is None or journal.is_outside_under_way:
            await out()
            return said[0]
        if journal.quota_left == 0 and not journal.repeats_outside:
            raise QuotaUsedUp("the quota of calls to the outside is used up")
        try:
            result = await journal.call(ToolCall(call_id="", name=name, arguments=arguments), out, is_outside=True)
        except Departed as error:
            self.departed = str(error)
            raise
        # The caller is a program, which needs what was really said; what goes on record is redacted.
        return said[0] if said else Answer(content=result.content, is_error=result.error, is_repeated=True)
