"""Doubles of what an environment process talks to: the gateway's gRPC stream and its chat endpoint."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.api.rollout.v1 import environments_pb2_grpc as rpc
from gyre.env import Environment, Score, StepResult, Task, ToolCall
from gyre.rpc import RpcServer

COUNT_TOOL = {"type": "function", "function": {"name": "count", "parameters": {"type": "object", "properties": {}}}}


class Counter(Environment):
    """Counts calls of its one tool; `submit` after three of them is a success."""

    name = "counter"
    milestones = {"counted": 0.1}
    closed = 0

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.calls: list[ToolCall] = []

    def tools(self) -> list[dict[str, Any]]:
        return [COUNT_TOOL]

    def reset(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": "count to three"}]

    def step(self, call: ToolCall) -> StepResult:
        self.calls.append(call)
        return StepResult(content=str(len(self.calls)), done=len(self.calls) == 3)

    def score(self) -> Score:
        return Score(outcome=float(len(self.calls) == 3), milestones={"counted": bool(self.calls)})

    def close(self) -> None:
        type(self).closed += 1


def tool_reply(arguments: str = "{}", name: str = "count") -> dict[str, Any]:
    call = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class ChatDouble:
    """POST /v1/chat/completions: `answer(request body, n)` gives a message, or (status, headers, body)."""

    def __init__(self, answer: Callable[[dict[str, Any], int], Any]) -> None:
        self._answer = answer
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def __aenter__(self) -> "ChatDouble":
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/key/{key}/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = self._answer(self.requests[-1], len(self.requests))
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, tuple):
            status, headers, body = answer
            return web.json_response(body, status=status, headers=headers)
        return web.json_response({"choices": [{"message": answer, "finish_reason": "tool_calls"}], "usage": {}})


class GatewayDouble(rpc.EnvironmentServiceServicer):
    """The stream's other end. Messages received are in `received`; `send` answers; `drop` breaks the stream."""

    def __init__(self, api_base: str = "http://127.0.0.1:1/v1", heartbeat_s: float = 0.3) -> None:
        self.welcome = pb.Welcome(
            api_base=api_base, model="policy", heartbeat_s=heartbeat_s, observation_bytes_max=1000
        )
        self.received: asyncio.Queue[pb.AttachRequest] = asyncio.Queue()
        self.hellos: asyncio.Queue[pb.Hello] = asyncio.Queue()
        self.beats = 0
        self.accepts = True
        self.welcomes = asyncio.Event()
        """Cleared, it leaves a Hello without its answer for as long."""
        self.welcomes.set()
        self._out: asyncio.Queue[pb.AttachResponse | None] = asyncio.Queue()

    async def Attach(self, request_iterator, context):
        self._out = out = asyncio.Queue()

        async def read() -> None:
            async for message in request_iterator:
                kind = message.WhichOneof("body")
                if kind == "hello":
                    self.hellos.put_nowait(message.hello)
                    await self.welcomes.wait()
                    out.put_nowait(pb.AttachResponse(request_id=message.request_id, welcome=self.welcome))
                elif kind == "heartbeat":
                    self.beats += 1
                else:
                    self.received.put_nowait(message)
                    if self.accepts:
                        out.put_nowait(pb.AttachResponse(request_id=message.request_id, accepted=pb.Accepted()))

        reading = asyncio.create_task(read())
        try:
            while (message := await out.get()) is not None:
                yield message
        finally:
            reading.cancel()

    def assign(self, execution: str = "g000001-e0", attempt: int = 1, **fields: Any) -> None:
        given = {"task_id": "t1", "task_type": "count", "seed": 7, "payload_json": json.dumps({"a": 1}), "api_key": "key-1",
                 "wall_s": 600.0, "turns_max": 10, "output_tokens_max": 16, "temperature": 1.0, "top_p": 1.0}  # fmt: skip
        assignment = pb.Assignment(**(given | fields))
        self._out.put_nowait(pb.AttachResponse(execution_id=execution, attempt=attempt, assignment=assignment))

    def cancel(self, execution: str, attempt: int = 1) -> None:
        self._out.put_nowait(
            pb.AttachResponse(execution_id=execution, attempt=attempt, cancel=pb.Cancel(reason="voided"))
        )

    def truncate(self, execution: str, attempt: int = 1) -> None:
        self._out.put_nowait(
            pb.AttachResponse(execution_id=execution, attempt=attempt, truncate=pb.Truncate(reason="late"))
        )

    def drop(self) -> None:
        self._out.put_nowait(None)


async def serve_double(
    gateway: GatewayDouble, address: str = "127.0.0.1:0", keys: dict[str, str] | None = None
) -> RpcServer:
    server = RpcServer(address, keys)
    server.add(rpc.add_EnvironmentServiceServicer_to_server, gateway, "gyre.api.rollout.v1.EnvironmentService")
    await server.start()
    return server
