"""Odd requests of two sessions against the gateway's real HTTP side, and what must hold of each answer."""

import asyncio
import collections
import itertools
import json
from random import Random

import aiohttp

from gyre.bus.server import free_port
from gyre.clock import SystemClock
from gyre.config import Config, RolloutConfig
from gyre.records import CallRecorded, array
from services.rollout.core.keys import sign
from services.rollout.core.leases import Attempts
from services.rollout.core.session import Model
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.http import HttpGateway

from .builders import tool_text
from .odd_requests import PATHS, odd_request, plain
from .test_calls import BusDouble, PoolDouble, claims

SECRET = b"s" * 32
MARKERS = {"g000001-e0": "SECRETALPHA", "g000002-e0": "SECRETBETA"}
CONTEXT_MAX, AT_ONCE = 4096, 12
LAST = {"/v1/chat/completions": b"[DONE]", "/v1/messages": b"message_stop", "/v1/responses": b'"type":"response.'}
SAID = (
    "hello STOP more", "", "<think>hm</think>yes", tool_text("read_file", '{"path": 1.0}') * 2, "<tool_call>{", "é日本",
    tool_text("f", '{"a": NaN}'), "<tool_call><function=f>\n<parameter=a>\n1\n</parameter></function>",
    tool_text("f", '{"a": "\\ud800\n"}}'),
)  # fmt: skip


class EchoEngine(PoolDouble):
    """Says back the end of the prompt, so that a session's own words are in its replies, and something else besides."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._turn = itertools.count()

    async def generate(self, work) -> None:
        turn = next(self._turn)
        await asyncio.sleep(0)
        self.text = self.model.template.decode(work.prompt_ids[-40:-8]) * (turn % 3) + SAID[turn % len(SAID)]
        self.finish = "length" if turn % 5 == 0 and self.text else "stop"
        await super().generate(work)


class Bombardment:
    """`async with Bombardment(model) as one: await one.run(seed, count)`."""

    def __init__(self, model: Model) -> None:
        self.statuses: collections.Counter[int] = collections.Counter()
        self.problems: list[str] = []
        self.model, self.bus, attempts = model, BusDouble(), Attempts()
        for execution in MARKERS:
            attempts.leased(execution, 1)
        config = Config(rollout=RolloutConfig(context_max=CONTEXT_MAX))
        clock = SystemClock()
        calls = ModelCalls(config, model, EchoEngine(model), self.bus, clock, attempts)
        self._gateway = HttpGateway(calls, CallRoles(config, self.bus, clock), SECRET, 200_000, CONTEXT_MAX)
        self._base = f"http://127.0.0.1:{free_port()}"

    async def __aenter__(self) -> "Bombardment":
        await self._gateway.start(self._base.removeprefix("http://"))
        self._http = aiohttp.ClientSession(self._base)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()
        await self._gateway.stop()

    async def run(self, seed: int, count: int) -> None:
        """That many requests, half of each session's, then one of each kind that must be served."""
        shares = [range(start, count, AT_ONCE) for start in range(AT_ONCE)]
        await asyncio.gather(*(self._some(seed, share) for share in shares))
        rng = Random(seed)
        for path, (execution, marker) in itertools.product(PATHS, MARKERS.items()):
            await self._send(execution, path, json.dumps(plain(rng, path, marker)).encode(), True)

    async def _some(self, seed: int, share: range) -> None:
        for index in share:
            execution, marker = list(MARKERS.items())[index % 2]
            path, body, is_good = odd_request(Random(f"{seed}/{index}"), marker)
            await self._send(execution, path, body, is_good)

    async def _send(self, execution: str, path: str, body: bytes, is_good: bool) -> None:
        key = sign(claims(execution_id=execution, group_id=execution[:7], turns_max=10**6, context_tokens_max=CONTEXT_MAX), SECRET)  # fmt: skip
        async with self._http.post(path, data=body, headers={"authorization": f"Bearer {key}"}) as reply:
            said, status = await reply.read(), reply.status
            is_stream = reply.content_type == "text/event-stream"
        self.statuses[status] += 1
        if status >= 500 and status != 503:
            self._problem(f"{status}", path, body, said)
        if is_good and status != 200:
            self._problem(f"refused with {status}", path, body, said)
        if any(marker.encode() in said for other, marker in MARKERS.items() if other != execution):
            self._problem("the other session's words", path, body, said)
        if is_stream:
            if LAST[path] not in said[-6000:] and b"error" not in said:
                self._problem("the stream has no end", path, body, said)
        elif not self._has_form(path, status, said):
            self._problem("not the dialect's form", path, body, said)

    @staticmethod
    def _has_form(path: str, status: int, said: bytes) -> bool:
        answer = json.loads(said)
        if status == 200:
            return bool({"choices", "content", "output", "input_tokens"} & set(answer))
        if path.startswith("/v1/messages"):
            return answer["type"] == "error" and bool(answer["error"]["type"] and answer["error"]["message"])
        return set(answer["error"]) == {"message", "type", "param", "code"} and bool(answer["error"]["message"])

    def _problem(self, what: str, path: str, body: bytes, said: bytes) -> None:
        self.problems.append(f"{what}: {path} {body[:2000]!r} → {said[:500]!r}")

    def leaks(self) -> list[str]:
        """Call records in which the other session's words stand."""
        found = []
        for record in self.bus.records:
            if isinstance(record, CallRecorded):
                text = self.model.template.decode(array(record.prompt_delta, "int32").tolist())
                text += self.model.template.decode(array(record.output_ids, "int32").tolist()) + str(record)
                others = [marker for other, marker in MARKERS.items() if other != record.execution_id]
                found += [record.call_id for marker in others if marker in text]
        return found


async def check(model: Model, seed: int, count: int, caplog) -> Bombardment:
    """Bombard, and hold against all that must be so; answers the counts."""
    async with Bombardment(model) as one:
        await one.run(seed, count)
    assert not one.problems, f"{len(one.problems)} of {count}:\n" + "\n".join(one.problems[:5])
    assert not one.leaks()
    assert not [record.message for record in caplog.records if "a defect" in record.message]
    assert one.statuses[200] > count / 5 and one.statuses[400] > count / 5, one.statuses
    return one
