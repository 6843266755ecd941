"""Sessions of agents as the gateway meets them: the whole history comes with every call, a tool's result at its end.

An agent's own HTTP client is no part of what the gateway adds, so a `Line` does next to nothing: one kept connection, one write of bytes that were
put together before, one look for the end of the answer.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

import numpy as np

from benchmarks.gateway_parts.rig import Rig, words
from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.api.rollout.v1 import cells_pb2_grpc as rpc
from gyre.rpc import open_channel
from services.rollout.core.template import ChatTemplate

SYSTEM_WORDS, TURN_WORDS = 40, 500
"""With what a template adds, 128 turns are some 70,000 tokens; every call, the first too, brings some 550 of them."""
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{index}", "description": words(20, index),
     "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}} for index in range(12)
]  # fmt: skip


class Line(asyncio.Protocol):
    """A connection to an HTTP server that answers with a Content-Length."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._got, self._end = bytearray(), 0
        self._answer: asyncio.Future[bytes] | None = None

    async def open(self, host: str, port: int) -> None:
        """Unless it is open."""
        if self._transport is None or self._transport.is_closing():
            await asyncio.get_running_loop().create_connection(lambda: self, host, port)

    async def ask(self, request: bytes) -> bytes:
        """The whole answer, its head included."""
        assert self._transport is not None
        self._got, self._end = bytearray(), 0
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._end and (end := self._got.find(b"\r\n\r\n")) >= 0:
            length = bytes(self._got[:end]).lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self._end = end + 4 + int(length)
        if self._answer is not None and 0 < self._end <= len(self._got):
            self._answer.set_result(bytes(self._got))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the gateway hung up"))


class Session:
    """One agent."""

    def __init__(self, url: str, key: str, number: int) -> None:
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 80
        self._line = Line()
        self._head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nUser-Agent: bench\r\nContent-Length: "
        ).encode()
        self._number, self.turns = number, 0
        self._pieces = [
            _json({"role": "system", "content": words(SYSTEM_WORDS, 1)}),
            _json({"role": "user", "content": words(TURN_WORDS, number)}),
        ]
        self.prompt_tokens = 0

    async def call(self, engine_s: float) -> float:
        """Ask, take the reply into the history, add a tool's result; seconds until the reply was here."""
        tail = _json({"tools": TOOLS, "max_tokens": max(1, round(1000 * engine_s)), "model": "policy"})[1:]
        body = b'{"messages":[' + b",".join(self._pieces) + b"]," + tail
        request = self._head + f"{len(body)}\r\n\r\n".encode() + body
        await self._line.open(self._host, self._port)
        begin_s = time.perf_counter()
        raw = await self._line.ask(request)
        took_s = time.perf_counter() - begin_s
        head, _, said = raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), raw[:600]
        answer = json.loads(said)
        self.turns += 1
        self.prompt_tokens = answer["usage"]["prompt_tokens"]
        said = answer["choices"][0]["message"]["content"]
        self._pieces += [
            _json({"role": "assistant", "content": said}),
            _json({"role": "user", "content": words(TURN_WORDS, self._number * 1000 + self.turns)}),
        ]
        return took_s


class Direct:
    """The same calls at the cell, without a gateway."""

    def __init__(self, rig: Rig) -> None:
        self._channel = open_channel(rig.folder.endpoint("cell-0"), rig.service_key)
        self._cell = rpc.CellServiceStub(self._channel)
        self._serial = 0
        template = ChatTemplate.load(rig.folder.model)
        self._ids = np.array(template.encode(words(TURN_WORDS, 1)), "<i4")
        """Ids as a prompt has them: the cell makes an object of each, but of the smallest ones, which Python keeps."""
        self.running = asyncio.Event()
        """A call of `first_token_of` is being sampled."""

    async def close(self) -> None:
        await self._channel.close(None)

    async def call(self, tokens: int, engine_s: float) -> float:
        """With a prompt of that many tokens."""
        self._serial += 1
        ids = np.resize(self._ids, tokens).tobytes()
        begin_s = time.perf_counter()
        call = {
            "call_id": f"direct-{self._serial}", "session": "direct", "prompt": ids, "max_tokens": max(1, round(1000 * engine_s)),
            "temperature": 1.0, "top_p": 1.0, "seed": 1, "stop_ids": [2],
        }  # fmt: skip
        await self._cell.GenerateWhole(pb.GenerateWholeRequest(call=call))
        return time.perf_counter() - begin_s

    async def first_token_of(self, version: int) -> float:
        """When (perf_counter) the first token came that these weights sampled, in calls that run one after the other."""
        self.running.clear()
        while True:
            self._serial += 1
            request = pb.GenerateRequest(
                call_id=f"direct-{self._serial}", session="direct", prompt_ids=[7] * 16, max_tokens=400, temperature=1.0, top_p=1.0,
                seed=self._serial, stop_ids=[], chunk_tokens=1,
            )  # fmt: skip
            async for chunk in self._cell.Generate(request):
                if version in chunk.versions:
                    return time.perf_counter()
                self.running.set()


async def spread(calls: Sequence, engine_s: float, rounds: int) -> list[float]:
    """Each of `calls` (callables of no argument) again and again, `rounds` times, begun at different moments of `engine_s`; all times."""

    async def one(index: int) -> list[float]:
        await asyncio.sleep(engine_s * index / len(calls))
        return [await calls[index]() for _ in range(rounds)]

    return [took_s for times in await asyncio.gather(*map(one, range(len(calls)))) for took_s in times]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
