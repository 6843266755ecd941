"""A test tool: a server that speaks as vLLM's does, samples a given row of tokens, and fails where it is told to."""

import asyncio
import json
from collections import Counter

import safetensors.torch
from aiohttp import web

from services.rollout.engine.vllm.client import Silent, VllmClient
from services.rollout.engine.vllm.plugin.gyre_vllm.digest import digest_of

LOGPROB = -0.5


class FakeProcess:
    """Stands for VllmProcess: a server in the engine's own thread."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self.starts = 0
        self.fails: Counter[str] = Counter()
        """Route → how many more requests to it are answered with 500."""
        self.hangs: Counter[str] = Counter()
        """Route → how many more requests to it are never answered."""
        self.loses = False
        """Whether an update leaves the weights as they were."""
        self.held = False
        """Whether streams wait before each token. Set from any thread."""
        self.core_is_dead = False
        """Whether the server still answers while nothing can be sampled any more. Set from any thread; a start mends it."""
        self.lies = 0
        """Added to the version of each span."""
        self.cached_tokens = 1
        """Of each prompt, in what is said when its stream ends."""
        self.starts_fail = 0
        self.asked: list[str] = []
        self.bodies: list[dict] = []
        self.pid: int | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, client: VllmClient) -> None:
        await self.stop()
        self.starts += 1
        if self.starts_fail:
            self.starts_fail -= 1
            raise Silent("did not come up")
        self.version, self.digest, self.is_paused, self.aborted = 0, "", False, set()
        self.core_is_dead = False
        self._died = asyncio.Event()
        app = web.Application(middlewares=[self._judge])
        app.router.add_get("/health", self._health)
        app.router.add_post("/inference/v1/generate", self._generate)
        app.router.add_post("/inference/v1/abort_requests", self._abort)
        for name in ("pause", "resume", "start_weight_update", "reset_prefix_cache"):
            app.router.add_post(f"/{name}", getattr(self, f"_{name}"))
        app.router.add_post("/update_weights", self._update)
        app.router.add_post("/finish_weight_update", self._finish)
        app.router.add_post("/collective_rpc", self._rpc)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.UnixSite(self._runner, self.socket).start()
        self.pid = self.starts

    async def died(self) -> None:
        if self.pid is not None:
            await self._died.wait()

    async def stop(self) -> None:
        if self._runner is not None:
            self.pid = None
            self._died.set()
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def last_words(self) -> str:
        return "fake"

    def forget(self) -> None:
        pass

    @web.middleware
    async def _judge(self, request: web.Request, handler) -> web.StreamResponse:
        name = request.path.strip("/")
        self.asked.append(name)
        if self.hangs[name]:
            self.hangs[name] -= 1
            await asyncio.sleep(3600)
        if self.fails[name]:
            self.fails[name] -= 1
            return web.Response(status=500, text="told to fail")
        return await handler(request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=503 if self.core_is_dead else 200)

    async def _pause(self, request: web.Request) -> web.Response:
        self.is_paused = True
        return web.json_response({})

    async def _resume(self, request: web.Request) -> web.Response:
        self.is_paused = False
        return web.json_response({})

    async def _start_weight_update(self, request: web.Request) -> web.Response:
        return web.json_response({})

    async def _reset_prefix_cache(self, request: web.Request) -> web.Response:
        return web.json_response({"success": True})

    async def _update(self, request: web.Request) -> web.Response:
        info = (await request.json())["update_info"]
        weights = safetensors.torch.load_file(info["files"][0]["path"])
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
        if not self.loses:
            self.digest = digest_of(weights)
        return web.json_response({})

    async def _finish(self, request: web.Request) -> web.Response:
        self.version = int((await request.json())["weight_version"])
        return web.json_response({})

    async def _rpc(self, request: web.Request) -> web.Response:
        return web.json_response({"results": [{"digest": self.digest}]})

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted |= {name.removeprefix("generate-tokens-") for name in (await request.json())["request_ids"]}
        return web.Response()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        """Token i is 10 + i. As vLLM does, only the last message says which versions sampled what."""
        body = await request.json()
        self.bodies.append(body)
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        versions: list[int] = []
        limit = body["sampling_params"]["max_tokens"]
        while len(versions) < limit and body["request_id"] not in self.aborted:
            if self.core_is_dead:
                await reply.write(b'data: {"error": {"message": "the core is dead"}}\n\n')
                return reply
            if self.is_paused or (self.held and versions):
                await asyncio.sleep(0.005)
                continue
            versions.append(self.version)
            last = len(versions) == limit
            await self._say(reply, [9 + len(versions)], "length" if last else None, versions if last else None)
        if len(versions) < limit:
            await self._say(reply, [], "abort", versions)
        usage = {
            "prompt_tokens": len(body["token_ids"]), "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }  # fmt: skip
        await reply.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
        await reply.write(b"data: [DONE]\n\n")
        return reply

    async def _say(
        self, reply: web.StreamResponse, ids: list[int], finish: str | None, versions: list[int] | None
    ) -> None:
        spans = versions and [
            {"version": str(version + self.lies), "start": at, "end": at + 1} for at, version in enumerate(versions)
        ]
        content = [{"token_id": token, "logprob": LOGPROB} for token in ids]
        choice = {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": finish, "weight_versions": spans}
        await reply.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
