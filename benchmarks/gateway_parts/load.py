"""Sessions of agents as the gateway meets them: the whole history comes with every call, a tool's result at its end."""

import asyncio
import json
import time
from collections.abc import Sequence

import aiohttp

from benchmarks.gateway_parts.rig import Rig, words
from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.api.rollout.v1 import cells_pb2_grpc as rpc
from gyre.rpc import open_channel

SYSTEM_WORDS, TURN_WORDS = 40, 500
"""With what a template adds, 128 turns are some 70,000 tokens; every call, the first too, brings some 550 of them."""
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{index}", "description": words(20, index),
     "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}} for index in range(12)
]  # fmt: skip


class Session:
    """One agent. Bodies are put together from pieces: a client's own work on a long history is not the gateway's."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str, number: int) -> None:
        self._http, self._url = http, f"{url}/v1/chat/completions"
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._number, self.turns = number, 0
        self._pieces = [
            _json({"role": "system", "content": words(SYSTEM_WORDS, 1)}),
            _json({"role": "user", "content": words(TURN_WORDS, number)}),
        ]
        self.prompt_tokens = 0
        self.cell_s = 0.0

    async def call(self, engine_s: float) -> float:
        """Ask, take the reply into the history, add a tool's result; seconds until the reply was here."""
        tail = _json({"tools": TOOLS, "max_tokens": max(1, round(1000 * engine_s)), "model": "policy"})[1:]
        body = b'{"messages":[' + b",".join(self._pieces) + b"]," + tail
        begin_s = time.perf_counter()
        async with self._http.post(self._url, data=body, headers=self._headers) as response:
            raw = await response.read()
        took_s = time.perf_counter() - begin_s
        assert response.status == 200, raw[:300]
        answer = json.loads(raw)
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
        self.running = asyncio.Event()
        """A call of `first_token_of` is being sampled."""

    async def close(self) -> None:
        await self._channel.close(None)

    async def call(self, tokens: int, engine_s: float) -> float:
        """With a prompt of that many tokens."""
        self._serial += 1
        ids = (7).to_bytes(4, "little") * tokens
        begin_s = time.perf_counter()
        request = pb.GenerateRequest(
            call_id=f"direct-{self._serial}", session="direct", prompt=ids, max_tokens=max(1, round(1000 * engine_s)),
            temperature=1.0, top_p=1.0, seed=1, stop_ids=[2],
        )  # fmt: skip
        async for _ in self._cell.Generate(request):
            pass
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
