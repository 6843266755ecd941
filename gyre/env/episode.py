"""Drives one execution of one environment.

    reset ──▶ messages ──▶ model ──▶ tool calls ──▶ step ──▶ … ──▶ score ──▶ close

| what ends it | ending | reason | scored |
|---|---|---|---|
| StepResult.done | completed | submitted | yes |
| StepResult.truncated: the world's own limit | timed_out | turns | what was left behind |
| a reply without a tool call | completed | stopped | yes |
| turn limit, wall clock, full context, tokens or calls in all | timed_out | turns, wall, context, tokens, calls | what was left behind (B4) |
| first messages that do not fit the context | failed | environment_invalid | no |
| told that its batch's wait is over | timed_out | truncated | what was left behind (C5) |
| a step that raises Rollback | goes back to the last snapshot; failed, environment_error where there is none, or it does not help | |
| a step that never returns | timed_out | wall | yes, if `score` still answers; else failed, environment_hung |
| the environment raises | failed | environment_error | no: an error is never a reward |
| the environment answers rubbish | failed | environment_invalid | no |
"""

import json
import logging
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from gyre.env.driving import SelfDriven
from gyre.env.ends import Ending, Limits, Over, checked_messages
from gyre.env.environment import Environment, Evidence, Rollback, StepResult, Task, ToolCall
from gyre.env.keeping import CannotResume, Keeper
from gyre.env.limits import check_made_of, check_milestones, check_sendable, cut_detail, cut_text
from gyre.env.milestones import Milestones
from gyre.env.model import ChatModel, ContextFull, OutOfTime, OutOfTurns, Refused
from gyre.env.outside import Way
from gyre.env.recording import Departed
from gyre.env.scoring import judge
from gyre.env.shapes import openai_tools, step_result
from gyre.env.shelf import Shelf
from gyre.env.wall import WallClock
from gyre.env.worker import SHARED, Hung, Rubbish, Threads, Worker
from gyre.errors import InvalidInput
from gyre.telemetry import span

log = logging.getLogger(__name__)

CLOSE_S = 10.0
STEP_GRACE_SHARE = 0.05
STEP_GRACE_MAX_S = 5.0
"""A step under way when the wall clock ends may still finish for this share of the wall clock; only then has it hung and is left
behind. A quarter of what the gateway waits beyond the wall clock, so that there is time left to score."""


class Episode:
    """One attempt. `run` it once."""

    def __init__(
        self, factory: Callable[[Task], Environment], task: Task, limits: Limits, model: ChatModel,
        started: Callable[[Evidence], Awaitable[None]], traceparent: str = "", threads: Threads = SHARED,
        wall: WallClock | None = None, keeper: Keeper | None = None, way_out: Way | None = None,
    ) -> None:  # fmt: skip
        """`started` is told what the world is made of as soon as it is up; `threads` are shared by the process's executions; whoever may
        suspend this one keeps its `wall`; `keeper` keeps its snapshots; `way_out` is where it calls the outside."""
        self._way_out = way_out
        self._factory = factory
        self._task = task
        self._limits = limits
        self._model = model
        self._started = started
        self._traceparent = traceparent
        self._worker = Worker(threads)
        self._environment: Environment | None = None
        self._milestones: Milestones | None = None
        self._tools: list[dict[str, Any]] = []
        self._names: set[str] = set()
        self._external_calls = 0
        self._asked = 0
        """Model calls, as the gateway counts them."""
        self._wall = wall or WallClock()
        self._keeper = keeper or Shelf().keeper(task.task_id, 1, task.task_type)
        self._grace_s = 0.0

    async def run(self) -> Ending:
        """Raises only CancelledError; the environment is closed exactly once in any case."""
        self._wall.start(self._limits.wall_s)
        self._grace_s = min(STEP_GRACE_SHARE * self._limits.wall_s, STEP_GRACE_MAX_S)
        ending = None
        try:
            ending = await self._run()
            return ending
        finally:
            await self._close()
            await self._keeper.close(ending.reason if ending else "")

    async def _run(self) -> Ending:
        try:
            messages = await self._start()
            over = await self._agent(messages)
            self._check_departed()
            evaluation = None
            if over.ending != "failed":
                with span("evaluation", self._traceparent, gyre_evaluation_of=over.reason) as timed:
                    evaluation = await judge(self._environment, self._worker, self._milestones.turns)
                    timed.set_attribute("gyre.outcome", evaluation.outcome)
        except Over as error:
            over, evaluation = error, None
        except Hung as error:
            over, evaluation = Over("failed", "environment_hung", str(error)), None
        except InvalidInput as error:
            over, evaluation = Over("failed", "environment_invalid", str(error)), None
        except Exception:
            over, evaluation = Over("failed", "environment_error", traceback.format_exc(limit=-8)), None
        made_outside = self._way_out.gate.made if self._way_out else 0
        return Ending(
            ending=over.ending, reason=over.reason, detail=self._keeper.redacted(cut_detail(over.detail)), evaluation=evaluation,
            external_calls=self._external_calls + made_outside, snapshots=self._keeper.snapshots, rollback_turns=self._keeper.rollback_turns,
            quota_left=self._keeper.journal.quota_left,
        )  # fmt: skip

    async def _start(self) -> list[dict[str, Any]]:
        with span("environment.start", self._traceparent, gyre_task=self._task.task_id):
            messages, evidence = await self._build()
            try:
                messages = await self._keeper.begin(self._environment, messages, self._call, self._passed_s)
            except CannotResume:
                half_restored, self._environment = self._environment, None
                await self._call(half_restored.close)
                messages, evidence = await self._build()
                messages = await self._keeper.begin(self._environment, messages, self._call, self._passed_s)
        self._milestones = Milestones(self._environment)
        await self._milestones.look(0, self._call)
        from_what = self._keeper.origin(evidence.dependency_snapshot)
        is_replay = evidence.is_replay or self._keeper.is_replay
        await self._started(msgspec.structs.replace(evidence, is_replay=is_replay, dependency_snapshot=from_what))
        return messages

    async def _build(self) -> tuple[list[dict[str, Any]], Evidence]:
        """A new world. Raises InvalidInput."""
        self._environment = world = await self._call(self._factory, self._task, then=_made)
        self._worker.shares_loop = world.shares_loop is True
        world.way_out = self._way_out
        await self._keeper.meet(world, self._call)
        asks_itself = isinstance(world, SelfDriven)
        messages = await self._call(world.reset, then=list if asks_itself else partial(checked_messages, "reset()"))
        self._tools = await self._call(world.tools, then=_sendable_tools)
        evidence = await self._call(world.evidence, then=_checked_evidence)
        check_milestones(world.milestones)
        self._names = {tool["function"]["name"] for tool in self._tools}
        return messages, evidence

    async def _agent(self, messages: list[dict[str, Any]]) -> Over:
        """Who asks the model: we, turn by turn, or the agent itself."""
        if isinstance(self._environment, SelfDriven):
            return await self._environment.drive(self._model.access(), self._limits, self._wall)
        return await self._converse(messages)

    async def _converse(self, messages: list[dict[str, Any]]) -> Over:
        """Turn by turn until something ends it."""
        try:
            while True:
                messages = await self._compacted(messages) if self._keeper.has_acted else messages
                reply, turn = await self._next_reply(messages)
                calls = reply.get("tool_calls") or []
                if not calls:
                    return Over("completed", "stopped")
                messages.append(reply)
                try:
                    over = await self._act_all(calls, messages)
                except Rollback as error:
                    messages = await self._go_back(error)
                    continue
                await self._milestones.look(turn, self._call)
                if over is not None:
                    return over
                await self._keeper.after(turn, messages, self._call)
        except Over as over:
            return over
        except OutOfTurns as error:
            return Over("timed_out", error.reason)
        except ContextFull as error:
            if not self._keeper.has_acted:  # nothing the agent did, so nothing to judge it by
                raise InvalidInput(f"reset()'s messages and tools() leave no room for an answer: {error}") from error
            return Over("timed_out", "context", str(error))
        except OutOfTime:
            return Over("timed_out", self._wall.reason)
        except Hung as error:
            return Over("timed_out", self._wall.reason, str(error))
        except Refused as error:  # the gateway's word, not the environment's fault, but nothing to train on either
            return Over("failed", "environment_error", str(error))

    async def _next_reply(self, messages: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
        """What the model says, and the number of the call; 0 where an earlier attempt made it. After going back it is what it said before."""
        if (known := self._keeper.journal.next_reply()) is not None:
            return known.message, known.turn
        if self._keeper.journal.turns_before + self._asked >= self._limits.turns_max:
            raise OutOfTurns(f"{self._limits.turns_max} turns were made")
        reply = await self._model.complete(messages, self._tools, self._wall)
        self._asked += 1
        self._keeper.journal.said(reply, self._asked)
        return reply, self._asked

    async def _go_back(self, error: Rollback) -> list[dict[str, Any]]:
        """The messages of the last snapshot."""
        try:
            messages, turn = await self._keeper.go_back(error, self._call)
        except Hung as hung:
            raise Over("timed_out", self._wall.reason, str(hung)) from hung
        except Exception:
            raise Over("failed", "environment_error", traceback.format_exc(limit=-8)) from None
        self._milestones.go_back(turn)
        return messages

    async def _compacted(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Raises InvalidInput for what is no history."""
        if type(self._environment).compact is Environment.compact:
            return messages
        try:
            return await self._call(self._environment.compact, messages, then=partial(checked_messages, "compact()"))
        except Hung as error:
            raise Over("timed_out", self._wall.reason, str(error)) from error
        except Rubbish:
            raise
        except Exception:
            raise Over("failed", "environment_error", traceback.format_exc(limit=-8)) from None

    async def _act_all(self, calls: list[dict[str, Any]], messages: list[dict[str, Any]]) -> Over | None:
        """One turn's tool calls, their observations added to the messages; how the execution ended, if one of them completed it."""
        for call in calls:
            try:
                content = await self._act(call)
            except Over as over:
                if over.reason not in (
                    "submitted",
                    "turns",
                ):  # these two are states of the world, to be looked at like any other
                    raise
                return over
            messages.append({"role": "tool", "tool_call_id": call.get("id", ""), "content": content})
        return None

    async def _act(self, call: dict[str, Any]) -> str:
        """One tool call's observation. What the model got wrong it is told, and it counts as a turn like any other."""
        name, arguments = call["function"].get("name", ""), call["function"].get("arguments", "")
        if name not in self._names:
            return f"error: there is no tool `{name[:80]}`; tools: {', '.join(sorted(self._names))}"
        try:
            parsed = json.loads(arguments or "{}")
            if not isinstance(parsed, dict):
                raise ValueError("a JSON object is needed")
        except (ValueError, TypeError, RecursionError) as error:
            return f"error: the arguments of `{name}` are not a JSON object: {error}"
        asked = ToolCall(call_id=call.get("id", ""), name=name, arguments=parsed)
        with span(f"execute_tool {name}", self._traceparent, gen_ai_tool_name=name) as timed:
            try:
                result = await self._keeper.journal.call(asked, lambda: self._carry_out(asked))
            except Hung as error:
                raise Over("timed_out", self._wall.reason, str(error)) from error
            except (Rollback, Over):
                raise
            except Departed as error:
                raise Over("failed", "environment_error", f"{error.code}: {error}") from error
            except Rubbish as error:
                raise Over("failed", "environment_invalid", str(error)) from error
            except Exception:
                raise Over("failed", "environment_error", traceback.format_exc(limit=-8)) from None
            timed.set_attribute("gyre.tool.refused", result.error)
        self._check_departed()
        self._environment.reward_sum += result.reward
        if result.truncated:
            raise Over("timed_out", "turns", "the world's own limit is reached")
        if result.done:
            raise Over("completed", "submitted")
        return cut_text(result.content, self._limits.observation_bytes_max)

    def _check_departed(self) -> None:
        """What a process of the world called outside is not what it called before: the world outside has seen another call."""
        if self._way_out is not None and self._way_out.gate.departed:
            raise Over("failed", "environment_error", f"{Departed.code}: {self._way_out.gate.departed}")

    def _passed_s(self) -> float:
        """Seconds of an arbitrary zero, which stand still while the execution is suspended."""
        return -self._wall.left_s()

    async def _carry_out(self, call: ToolCall) -> StepResult:
        self._external_calls += 1
        return await self._call(self._environment.step, call, then=self._observed)

    def _observed(self, said: Any) -> StepResult:
        """What is not shown is not recorded. Raises InvalidInput."""
        result = step_result(said)
        return msgspec.structs.replace(result, content=cut_text(result.content, self._limits.observation_bytes_max))

    async def _call(
        self, method: Callable[..., Any], *arguments: Any, then: Callable[[Any], Any] = lambda result: result
    ) -> Any:
        """Inside what is left of the wall clock when it begins: a suspension does not stop what the environment is doing. Raises as Worker.call."""
        return await self._worker.call(
            method, *arguments, timeout_s=self._wall.left_s() + self._grace_s, cut=self._wall.cut, grace_s=self._grace_s, then=then
        )  # fmt: skip

    async def _close(self) -> None:
        environment, self._environment = self._environment, None
        try:
            await self._worker.settle(CLOSE_S)
            if environment is not None:
                await self._worker.call(environment.close, timeout_s=CLOSE_S)
        except (Exception, Hung) as error:
            log.warning("%s: close() failed: %s", self._task.task_id, error)
        finally:
            self._worker.close()


def _made(environment: Any) -> Environment:
    if not isinstance(environment, Environment):
        raise InvalidInput(f"the factory must return a gyre.env.Environment, not {type(environment).__name__}")
    return environment


def _sendable_tools(tools: Any) -> list[dict[str, Any]]:
    """Raises InvalidInput."""
    check_sendable("tools()", tools)
    return openai_tools(tools)


def _checked_evidence(evidence: Any) -> Evidence:
    """Raises InvalidInput for what is none."""
    if not isinstance(evidence, Evidence):
        raise InvalidInput(f"evidence() must return gyre.env.Evidence, not {type(evidence).__name__}")
    check_made_of(evidence.image_digest, evidence.tool_versions, evidence.dependency_snapshot)
    return msgspec.structs.replace(evidence, is_replay=bool(evidence.is_replay))
