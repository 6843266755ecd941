"""CellService over an engine, embedded or vLLM."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc.aio
import numpy as np

from gyre.api.rollout.v1 import cells_pb2 as pb
from gyre.api.rollout.v1 import cells_pb2_grpc as rpc
from gyre.errors import Conflict, GyreError, Unavailable
from gyre.rpc import abort_with
from gyre.telemetry import emit_span
from services.rollout.cell.bridge import Bridge
from services.rollout.cell.contexts import Contexts, whole
from services.rollout.core.trie import Ids
from services.rollout.engine import Chunk, FinishReason, GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from services.rollout.engine import Engine

WHOLE_OUTPUT = 1 << 30
"""Chunk size of calls that nobody watches: one chunk at the end."""
WHOLE = frozenset({FinishReason.STOP, FinishReason.LENGTH})
"""How a call ends that is over, where it is asked for from its beginning."""


class CellServicer(rpc.CellServiceServicer):
    """Calls of one engine. `is_serving` is set by the cell's role; while it is False new calls are refused."""

    def __init__(self, engine: "Engine", bridge: Bridge) -> None:
        self._engine = engine
        self._bridge = bridge
        self._contexts = Contexts()
        self._serial = itertools.count()
        self._names: dict[str, set[str]] = {}
        self.is_serving = False
        self.checksum = ""
        self._started_s = time.monotonic()

    async def Generate(
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateResponse]:
        async with aclosing(self._chunks(request, request.chunk_tokens or WHOLE_OUTPUT, context)) as chunks:
            async for chunk, known in chunks:
                yield pb.GenerateResponse(
                    ids=chunk.token_ids, logprobs=chunk.logprobs, versions=chunk.versions,
                    finish_reason=str(chunk.finish_reason or ""), reused_tokens=chunk.reused_tokens, known=known,
                )  # fmt: skip

    async def GenerateWhole(
        self, request: pb.GenerateWholeRequest, context: grpc.aio.ServicerContext
    ) -> pb.GenerateWholeResponse:
        answer = pb.GenerateWholeResponse()
        output = answer.output
        async with aclosing(self._chunks(request.call, WHOLE_OUTPUT, context)) as chunks:
            async for chunk, known in chunks:
                output.ids.extend(chunk.token_ids)
                output.logprobs.extend(chunk.logprobs)
                output.versions.extend(chunk.versions)
                output.finish_reason = str(chunk.finish_reason or "")
                output.reused_tokens = max(output.reused_tokens, chunk.reused_tokens)
                output.known = known
        return answer

    async def _chunks(
        self, request: pb.GenerateRequest, chunk_tokens: int, context: grpc.aio.ServicerContext
    ) -> AsyncGenerator[tuple[Chunk, str]]:
        """Up to the one that has a finish, with the name of the call's context; who leaves earlier ends the call.

        Only a part of a call has a span of its own: of a whole one the gateway's span says all there is. The engine knows a call by a name of
        its own: a gateway that started anew may ask again while the old call dies."""
        if not self.is_serving:
            await abort_with(context, Conflict("this cell does not serve now"))
        name = f"{request.call_id}.{next(self._serial)}"
        queue: asyncio.Queue[Chunk] = asyncio.Queue()
        ids = np.frombuffer(request.prompt, "<i4") if request.prompt else np.array(request.prompt_ids, np.int32)
        try:
            parent = self._contexts.find(request.session, request.known, request.known_tokens)
            prompt = whole(parent, request.known_tokens, ids)
            self._engine.submit(_engine_request(name, request, prompt, chunk_tokens), self._bridge.sink(queue))
        except Unavailable as error:
            await abort_with(context, Conflict(str(error)))
        except GyreError as error:
            await abort_with(context, error)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._names.setdefault(request.call_id, set()).add(name)
        finish, began_s, output, detail = None, time.time(), list(request.resume_ids), ""
        try:
            while finish is None:
                chunk = await queue.get()
                finish = chunk.finish_reason
                output += chunk.token_ids
                if finish == "error":
                    detail = chunk.detail
                    await context.abort(grpc.StatusCode.INTERNAL, chunk.detail)
                known = ""
                if finish in WHOLE:
                    known = self._contexts.keep(request.session, parent, request.known_tokens, ids, output)
                yield chunk, known
        finally:
            if finish is None:
                self._engine.abort(name, "the gateway went away")
            self._names[request.call_id].discard(name)
            if not self._names[request.call_id]:
                del self._names[request.call_id]
            if request.resume_ids or finish not in WHOLE:
                sampled = len(output) - len(request.resume_ids)
                emit_span(
                    "Generate", began_s, time.time(), _traceparent(context), error=detail,
                    **{"gyre.call": request.call_id, "gyre.finish": str(finish or "left"), "gen_ai.usage.output_tokens": sampled},
                )  # fmt: skip

    async def Abort(self, request: pb.AbortRequest, context: grpc.aio.ServicerContext) -> pb.AbortResponse:
        for name in self._names.get(request.call_id, ()):
            self._engine.abort(name, "abandoned")
        return pb.AbortResponse()

    async def Drain(self, request: pb.DrainRequest, context: grpc.aio.ServicerContext) -> pb.DrainResponse:
        self.is_serving = False
        return pb.DrainResponse(moved_calls=await asyncio.to_thread(self._engine.drain))

    async def GetStatus(self, request: pb.GetStatusRequest, context: grpc.aio.ServicerContext) -> pb.GetStatusResponse:
        stats = self._engine.stats()
        return pb.GetStatusResponse(
            serving=self.is_serving and stats.loaded, version=stats.version, checksum=self.checksum, running=stats.running,
            waiting=stats.waiting, slots=stats.slots, tokens_sampled=stats.generated_tokens,
            tokens_prefilled=stats.prefill_computed_tokens, tokens_reused=stats.prefill_reused_tokens,
            busy_s=(1 - stats.idle_share) * (time.monotonic() - self._started_s),
        )  # fmt: skip


def _traceparent(context: grpc.aio.ServicerContext) -> str:
    """Of the execution whose call this is, empty where the caller names none."""
    return next((str(value) for name, value in context.invocation_metadata() or () if name == "traceparent"), "")


def _engine_request(name: str, request: pb.GenerateRequest, prompt: Ids, chunk_tokens: int) -> GenerateRequest:
    params = SamplingParams(
        temperature=request.temperature, top_p=request.top_p, max_tokens=request.max_tokens,
        stop_token_ids=tuple(request.stop_ids), seed=request.seed,
    )  # fmt: skip
    return GenerateRequest(
        name,
        request.session,
        prompt.tolist(),
        params,
        list(request.resume_ids),
        chunk_tokens,
    )
