"""Any OpenEnv server (github.com/meta-pytorch/OpenEnv), spoken to over its WebSocket, as an environment for language models.

    class Guessing(OpenEnvEnvironment):
        name, url = "guessing", "http://127.0.0.1:8000"
        prompt = "Guess my number."

One session of the server for each attempt. One tool, `act`, whose arguments are the server's own action by its schema; a server of MCP tools gives
those instead. Its messages carry no ids, so a connection on which an answer was given up on is not used again: the next answer might be that one.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import aiohttp

from gyre.env.environment import Environment, Evidence, Score, StepResult, Task, ToolCall
from gyre.env.shapes import observation_text
from gyre.errors import InvalidInput, Unavailable

START_S, CLOSE_S, MESSAGE_BYTES_MAX = 60.0, 1.0, 100 * 2**20
ANSWERS = {"reset": "observation", "step": "observation", "state": "state", "mcp": "mcp"}
"""What each request is answered with."""
OWN_FIELDS = ("metadata", "tools", "result", "error")
"""Of an observation: not shown to the model where they are empty."""


class OpenEnvEnvironment(Environment):
    """Subclass it, fill in what differs, pass the class to `gyre.env.serve`."""

    url: ClassVar[str]
    """Of the server: http://host:port."""
    prompt: ClassVar[str] = "Reach the goal. Call act with one action at a time."
    reward_for_success: ClassVar[float] = 1.0
    """The sum of rewards that counts as success."""
    uses_mcp: ClassVar[bool] = False
    """The server's tools are MCP's, instead of one action."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.over = False
        self.session = OpenEnvSession(self.url)
        self._schema: dict[str, Any] = {}

    async def reset(self) -> list[dict[str, Any]]:
        await self.session.open()
        self._schema = (await self.session.get("/schema")).get("action") or {}
        said = await self.session.ask("reset", {"seed": self.task.seed % 2**31, **self.task.payload})
        return [{"role": "user", "content": f"{self.prompt}\n{self.describe(said['observation'])}"}]

    async def tools(self) -> list[dict[str, Any]]:
        if self.uses_mcp:
            return (await self._mcp("tools/list", {})).get("tools") or []
        properties = {name: kind for name, kind in self._schema.get("properties", {}).items() if name != "metadata"}
        schema = {"type": "object", "properties": properties, "required": self._schema.get("required", [])}
        if "$defs" in self._schema:
            schema["$defs"] = self._schema["$defs"]
        return [{"name": "act", "description": self._schema.get("description", ""), "inputSchema": schema}]

    async def step(self, call: ToolCall) -> Any:
        if self.uses_mcp:
            return await self._mcp("tools/call", {"name": call.name, "arguments": call.arguments})
        try:
            said = await self.session.ask("step", call.arguments)
        except BadAction as error:
            return StepResult(content=f"error: {error}", error=True)
        self.over = bool(said.get("done"))
        reward = said.get("reward")
        return (
            self.describe(said["observation"]),
            0.0 if reward is None else reward,
            self.over,
            False,
            said.get("metadata") or {},
        )

    def score(self) -> Score:
        evidence = {"reward": self.reward_sum, "over": self.over}
        return Score(outcome=float(self.reward_sum >= self.reward_for_success), evidence=evidence)

    def evidence(self) -> Evidence:
        return Evidence(image_digest=f"openenv/{self.name}", tool_versions={"openenv.url": self.url})

    async def close(self) -> None:
        await self.session.close()

    def describe(self, observation: dict[str, Any]) -> str:
        """The observation as the model reads it."""
        return observation_text({key: value for key, value in observation.items() if value or key not in OWN_FIELDS})

    async def _mcp(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        reply = await self.session.ask("mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if reply.get("error"):
            text = f"error: {reply['error'].get('message', 'the server gave no reason')}"
            return {"content": [{"type": "text", "text": text}], "isError": True}
        result = reply.get("result") or {}
        return (
            result
            if method == "tools/list" or "content" in result
            else {"content": [{"type": "text", "text": json.dumps(result)}]}
        )

    @classmethod
    def tasks(cls, split: str, count: int, seed: int) -> Iterator[Task]:
        """`count` tasks with seeds of their own; even seeds are for training, odd ones held out."""
        for index in range(count):
            number = 2 * (seed * 1_000_003 + index) + (split == "heldout")
            yield Task(task_id=f"{cls.name}-{split}-{number}", task_type=cls.name, seed=number)


class BadAction(InvalidInput):
    """The server does not take it for an action of its kind: what the model got wrong."""

    code = "bad_action"


class OpenEnvSession:
    """One WebSocket session; requests one after the other."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Raises Unavailable."""
        self._http = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(START_S):
                self._socket = await self._http.ws_connect(
                    f"{self._url}/ws", max_msg_size=MESSAGE_BYTES_MAX, timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await self.close()
            raise Unavailable(
                f"the OpenEnv server {self._url} cannot be reached: {error or type(error).__name__}"
            ) from error

    async def get(self, path: str) -> dict[str, Any]:
        """Of the server itself, without the session. Raises Unavailable."""
        try:
            async with asyncio.timeout(START_S), self._http.get(self._url + path) as reply:
                reply.raise_for_status()
                return await reply.json()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise Unavailable(f"{self._url}{path} cannot be read: {error or type(error).__name__}") from error

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The answer's data. Raises BadAction, InvalidInput (what else the server refuses), Unavailable."""
        async with self._turn:
            if self._socket is None:
                raise Unavailable(f"the session with {self._url} is over")
            socket, self._socket = self._socket, None  # until the answer is there
            try:
                await socket.send_json({"type": kind} if kind == "state" else {"type": kind, "data": data})
                message = json.loads(await socket.receive_str())
            except (aiohttp.ClientError, OSError, TypeError, ValueError) as error:
                raise Unavailable(f"the session with {self._url} broke: {error}") from error
            finally:
                if "message" not in locals():
                    await socket.close()
            self._socket = socket
        if message.get("type") == ANSWERS[kind]:
            return message["data"]
        said = message.get("data") or {}
        text = f"{said.get('message', 'no reason given')} {said.get('errors') or ''}".strip()[:2000]
        raise (BadAction if said.get("code") == "VALIDATION_ERROR" else InvalidInput)(text)

    async def close(self) -> None:
        """Repeats change nothing."""
        if self._socket is not None:
            await self._socket.close()
        if self._http is not None:
            await self._http.close()
        self._socket = self._http = None
