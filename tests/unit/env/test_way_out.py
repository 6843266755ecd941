"""An execution's way out, from its tools to its ending: what an episode makes of the tool gateway (C4, C6)."""

import asyncio
import contextlib

import aiohttp

from gyre.env import Environment, Score, StepResult, Task
from gyre.env.episode import Episode, Limits
from gyre.env.model import ChatModel
from gyre.env.outside import Outside, ToolGateway
from gyre.env.recording import Redactor
from gyre.env.shelf import Shelf
from tests.unit.env.doubles import ChatDouble, tool_reply
from tests.unit.env.test_outside import HERE, Far

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("fetch", "search")
]
EXECUTION = "g000001-e0"


class Fetching(Environment):
    """`fetch` gets two pages by way of the gateway and is repeated; `search` gets one, and is on record itself. Three replies are enough."""

    name = "fetching"
    outside = frozenset({"search"})
    calls_max = 10
    base = ""
    query = ""
    seen: list[str] = []

    def tools(self):
        return TOOLS

    async def reset(self):
        await self.get("/setup")
        return [{"role": "user", "content": "go"}]

    async def step(self, call):
        said = await self.get(f"/{call.name}/1{self.query}")
        if call.name == "fetch":
            said += await self.get("/fetch/2")
        type(self).seen.append(said)
        return StepResult(content=said, done="submit" in call.arguments)

    async def get(self, path):
        async with aiohttp.ClientSession() as http, http.get(self.base + path, proxy=self.way_out.proxy_url) as reply:
            return await reply.text()

    def score(self):
        return Score(outcome=1.0)


async def attempt(number: int, tmp_path, gateway: ToolGateway, chat: ChatDouble, factory=Fetching):
    async def started(evidence) -> None:
        pass

    keeper = Shelf(tmp_path, Redactor()).keeper(EXECUTION, number, "f")
    way = gateway.admit(f"{EXECUTION}-a{number}", lambda: keeper.journal)
    limits = Limits(wall_s=60, turns_max=9, observation_bytes_max=1000)
    async with aiohttp.ClientSession() as http:
        model = ChatModel(http, lambda: chat.base, "key", {"model": "policy"})
        task = Task(task_id="t", task_type="f", seed=1)
        return await Episode(factory, task, limits, model, started, keeper=keeper, way_out=way).run()


def says(*names: str, hold_at: int = 0, held: asyncio.Event | None = None):
    """The model calls these tools, one a turn, the last of them to submit; it never answers turn `hold_at`."""

    async def answer(body, n):
        if n == hold_at:
            held.set()
            await asyncio.Event().wait()
        arguments = '{"submit": true}' if n == len(names) else "{}"
        return tool_reply(arguments, names[n - 1])

    return answer


async def lost_attempt(tmp_path, gateway) -> None:
    """Turns `fetch` and `search` are made and on record; then the process is lost while the model is asked a third time."""
    held = asyncio.Event()
    async with ChatDouble(says("fetch", "search", "fetch", hold_at=3, held=held)) as chat:
        running = asyncio.create_task(attempt(1, tmp_path, gateway, chat))
        await held.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@contextlib.asynccontextmanager
async def outside():
    gateway = ToolGateway(Outside(rules=HERE))
    await gateway.start()
    try:
        async with Far() as far:
            Fetching.base, Fetching.seen, Fetching.query = far.base, [], ""
            yield gateway, far
    finally:
        await gateway.close()


async def test_the_next_attempt_repeats_its_tools_and_asks_nobody_outside_twice(tmp_path):
    """`fetch` is carried out again and its two pages come from the record; `search` is answered as a whole; both show the model what it saw. Then one
    `fetch` is new: two calls. The page of `reset` is fetched by each attempt."""
    async with outside() as (gateway, far):
        await lost_attempt(tmp_path, gateway)
        assert far.asked == ["GET /setup", "GET /fetch/1", "GET /fetch/2", "GET /search/1"]
        first = list(Fetching.seen)
        Fetching.seen = []
        async with ChatDouble(says("fetch")) as chat:
            ending = await attempt(2, tmp_path, gateway, chat)
        assert (ending.ending, ending.reason) == ("completed", "submitted"), ending
        assert far.asked[4:] == ["GET /setup", "GET /fetch/1", "GET /fetch/2"] and len(chat.requests) == 1
        assert Fetching.seen[0] == first[0] == "2: /fetch/13: /fetch/2"
        shown = [m["content"] for m in chat.requests[0]["messages"] if m["role"] == "tool"]
        assert shown == first


async def test_calls_and_what_is_left_of_them_are_in_the_ending(tmp_path):
    """C6: three tool calls carried out, and 1 (reset) + 2 + 1 + 2 that went out; of ten, fetch took two each time and search one."""
    async with outside() as (gateway, far), ChatDouble(says("fetch", "search", "fetch")) as chat:
        ending = await attempt(1, tmp_path, gateway, chat)
        assert len(far.asked) == 6 and (ending.external_calls, ending.quota_left) == (3 + 6, 10 - 5)


async def test_a_tool_whose_calls_outside_depart_fails_the_execution(tmp_path):
    """The world outside has seen other calls than this attempt makes: failed, with what was recorded and what was asked; never a reward."""
    async with outside() as (gateway, far):
        await lost_attempt(tmp_path, gateway)
        Fetching.query = "?changed"
        async with ChatDouble(says("fetch")) as chat:
            ending = await attempt(2, tmp_path, gateway, chat)
        assert (ending.ending, ending.reason, ending.evaluation) == ("failed", "environment_error", None)
        assert "replay_departed" in ending.detail and "fetch/1?changed" in ending.detail
        assert far.asked[4:] == ["GET /setup"]
