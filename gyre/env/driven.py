"""Environments that hold the conversation themselves: a function, or a library with a loop of its own, that calls the model like any OpenAI client.

    async def guess(task: Task, agent: Agent) -> float:
        reply = await agent.chat([{"role": "user", "content": f"Which number is {task.seed % 10} + 1? The number only."}])
        return float((reply["content"] or "").strip() == str(task.seed % 10 + 1))

    serve(guess, name="guess")

The gateway counts turns and records calls as ever; wall clock, suspension and truncation are those of any execution. What it cannot have: its turns
repeated from a record, because nobody but the author knows where they begin.
"""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from gyre.env.driving import Access, SelfDriven
from gyre.env.ends import Limits, Over
from gyre.env.environment import Score, Task
from gyre.env.model import CONTEXT_CODES, TURNS_CODES, ContextFull, OutOfTime, OutOfTurns, Refused
from gyre.env.wall import WallClock
from gyre.env.worker import Hung, Worker
from gyre.errors import GyreError
from gyre.keyed_url import with_key

UNBOUNDED_S = 1e9
"""What the wall clock's own end cuts off needs no other bound."""
GRACE_S = 1.0
"""A conversation that is cut off may take so long to stop."""


class Agent:
    """The model as one execution sees it. `base_url` and `api_key` are for any OpenAI client, `url_with_key` for one that has no key or sends one
    of its own; `chat` and `ask` need none."""

    def __init__(self, access: Access, wall: WallClock) -> None:
        self._access, self._wall = access, wall
        self._loop = asyncio.get_running_loop()
        self.api_key = access.api_key
        """Of this execution, worthless for any other."""
        self.model = access.model
        """The name to ask for."""
        self.sampling = dict(access.sampling)
        """As assigned: temperature, top_p, max_tokens."""
        self.score: Score | float | None = None
        """What a function has so far, should it be cut off."""

    @property
    def base_url(self) -> str:
        """With `/v1`; the present gateway's, so ask again after an error."""
        return self._access.api_base().rstrip("/")

    @property
    def url_with_key(self) -> str:
        """`base_url` that says whose calls these are: whatever key is sent beside it means nothing, unless it is another execution's."""
        return with_key(self.base_url, self.api_key)

    @property
    def left_s(self) -> float:
        """Seconds of wall clock."""
        return self._wall.left_s()

    async def chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The assistant's message. Raises OutOfTurns, OutOfTime, ContextFull, Refused; let them through, the work so far is scored."""
        asked = self._access.complete(messages, tools or [], self._wall)
        if asyncio.get_running_loop() is self._loop:
            return await asked
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._loop))

    def ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """As `chat`, for plain functions, which run in a thread of their own."""
        return asyncio.run_coroutine_threadsafe(self.chat(messages, tools), self._loop).result()


class Driven(SelfDriven):
    """Implement `run` and `score`."""

    def reset(self) -> list[dict[str, Any]]:
        """Build the world. The messages are `run`'s own matter."""
        return []

    @abstractmethod
    def run(self, agent: Agent) -> None:
        """The whole conversation, plain or async. It is cut off when the wall clock ends (an async one is cancelled); `score` judges the rest."""

    async def drive(self, access: Access, limits: Limits, wall: WallClock) -> Over:
        running_out, worker = asyncio.ensure_future(wall.run_out()), Worker()
        try:
            await worker.call(self.run, Agent(access, wall), timeout_s=UNBOUNDED_S, cut=wall.cut, grace_s=GRACE_S)
        except (Hung, OutOfTime) as error:
            return Over("timed_out", wall.reason, str(error))
        except Refused as error:  # the gateway's word, not the environment's fault
            return Over("failed", "environment_error", str(error))
        except Exception as error:
            match limit_reached(error):
                case OutOfTurns() as limit:
                    return Over("timed_out", limit.reason)
                case ContextFull() as full:
                    return Over("timed_out", "context", str(full))
            raise
        except asyncio.CancelledError:
            await worker.settle(GRACE_S)
            raise
        finally:
            running_out.cancel()
            worker.close()
        return Over("completed", "stopped")


class FunctionEnvironment(Driven):
    """`function(task, agent)`, plain or async, returns a Score, or its outcome as a number. One that was cut off has no score, so
    it says what it has so far by `agent.score = …`, or is marked as invalid."""

    name = "function"

    def __init__(self, function: Callable[[Task, Agent], Any], task: Task) -> None:
        super().__init__(task)
        self._function = function
        self._agent: Agent | None = None
        self._said: Any = None
        if inspect.iscoroutinefunction(function):
            self.run = self._run_async

    def run(self, agent: Agent) -> Any:
        """In a thread; what is to be awaited after all (a decorated function's, an object's) is handed to who called this."""
        self._agent = agent
        said = self._function(self.task, agent)
        if inspect.isawaitable(said):
            return self._waited(said)
        self._said = said

    async def _run_async(self, agent: Agent) -> None:
        self._agent = agent
        await self._waited(self._function(self.task, agent))

    async def _waited(self, said: Awaitable[Any]) -> None:
        self._said = await said

    def score(self) -> Score:
        said = self._said if self._said is not None else getattr(self._agent, "score", None)
        if said is None:
            return Score(outcome=0.0, valid=False, evidence={"function": "returned no score"})
        return said if isinstance(said, Score) else Score(outcome=said)


def is_function(factory: Any) -> bool:
    """It is `function(task, agent)`, and no class and no maker of environments from a task alone."""
    if inspect.isclass(factory) or not callable(factory):
        return False
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return False
    given = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(given) == 2


def limit_reached(error: BaseException) -> GyreError | None:
    """The gateway's word that turns or context are used up, also where a client's own error carries it (OpenAI's has a `code`)."""
    for cause in _causes(error):
        code = getattr(cause, "code", None)
        if isinstance(cause, OutOfTurns | ContextFull):
            return cause
        if code in TURNS_CODES:
            return OutOfTurns(str(cause)[:300], TURNS_CODES[code])
        if code in CONTEXT_CODES:
            return ContextFull(str(cause)[:300])
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
