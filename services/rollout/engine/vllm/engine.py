"""The embedded engine's interface over a vLLM server: one thread with an event loop of its own, on which everything happens."""

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gyre.config.sections import VllmConfig
from services.rollout.core.weight_update import Outcome, Phase, Update, after
from services.rollout.engine.requests import (
    CallExists,
    ContextTooLong,
    EmptyPrompt,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    OnTokens,
    UnknownToken,
    WeightsRefused,
)
from services.rollout.engine.vllm.calls import Call, LabelsDiffer
from services.rollout.engine.vllm.client import Refused, Silent, VllmClient
from services.rollout.engine.vllm.process import VllmProcess
from services.rollout.engine.vllm.published import Published, Shape
from services.rollout.engine.vllm.updating import Updater
from services.rollout.engine.vllm.wire import body

log = logging.getLogger(__name__)

ABORT_S = 5.0
"""A call that was asked to end and still streams is cut off after this."""
GUARD_EVERY_S = 2.0
ENDS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.MIGRATED,
    "error": FinishReason.ERROR,
}
"""vLLM's word → ours; an abort that nobody asked for is a reason to go on elsewhere."""


class EngineLost(RuntimeError):
    """vLLM could not be brought to serve; whoever supervises the cell starts it anew."""


@dataclass(frozen=True, slots=True)
class VllmStats:
    """The part of EngineStats that a cell's service asks for."""

    slots: int
    running: int
    waiting: int
    version: int
    loaded: bool
    generated_tokens: int
    idle_share: float
    prefill_computed_tokens: int
    prefill_reused_tokens: int


class VllmEngine:
    """Starts unloaded; the process starts at once, in the background, so that the first `load` need not wait for all of it."""

    def __init__(
        self, model_dir: Path, slots: int, context_max: int, config: VllmConfig, process: VllmProcess,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.slots, self.context_max = slots, context_max
        self._config, self._process, self._monotonic_s = config, process, monotonic_s
        self._shape = Shape(model_dir, config.dtype)
        self._shape.check_context(context_max)
        self._lock = threading.Lock()
        """Of the next three, which callers' threads share."""
        self._calls: dict[str, Call] = {}
        self._is_loaded = self._is_closed = False
        self._tasks: dict[str, asyncio.Task] = {}
        self._names = itertools.count()
        self._good: Published | None = None
        self._live_version = 0
        self._is_wanted = False
        """Whether weights are to be loaded: then a process that dies is started again."""
        self._generated = self._computed = self._reused = 0
        self._start_s = self._seen_s = self._moved_s = monotonic_s()
        self._busy_s = 0.0
        ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._main(ready),), name="vllm-engine", daemon=True)
        self._thread.start()
        ready.wait()

    # Callers' side

    def submit(self, request: GenerateRequest, on_tokens: OnTokens) -> None:
        """As the embedded engine's: raises EmptyPrompt, ContextTooLong, UnknownToken, CallExists, EngineUnavailable."""
        prefix = [*request.prompt_ids, *request.resume_output_ids]
        if not request.prompt_ids:
            raise EmptyPrompt(request.call_id)
        if len(prefix) > self.context_max - 1:
            raise ContextTooLong(len(prefix), self.context_max)
        if min(prefix) < 0 or max(prefix) >= self._shape.vocab_size:
            raise UnknownToken(f"token ids {min(prefix)} to {max(prefix)}, vocabulary {self._shape.vocab_size}")
        call = Call(request, on_tokens, f"c{next(self._names)}")
        with self._lock:
            if self._is_closed or not self._is_loaded:
                raise EngineUnavailable("closed" if self._is_closed else "weights are unloaded")
            if request.call_id in self._calls:
                raise CallExists(request.call_id)
            self._count_time()
            self._calls[request.call_id] = call
        self._loop.call_soon_threadsafe(self._begin, call)

    def abort(self, call_id: str, reason: str = "") -> None:
        """End a call with the tokens it has; unknown or finished calls are ignored."""

        def end() -> None:
            if call := self._calls.get(call_id):
                self._end([call], FinishReason.ABORTED, reason)

        with contextlib.suppress(RuntimeError):  # the loop is closed, and all calls with it
            self._loop.call_soon_threadsafe(end)

    def drain(self) -> int:
        """End every call with `migrated`; how many, after their last chunks were given."""
        return self._ask(self._drain(FinishReason.MIGRATED))

    def load(self, source: Any, version: int, checksum: str | None = None) -> None:
        """New weights, in flight or after `unload`: running calls stand still meanwhile and go on with them. Raises WeightsRefused while
        the ones before serve on, EngineLost when nothing serves any more."""
        self._ask(self._load(Path(source), version, checksum))

    def unload(self) -> int:
        """Drain, refuse calls, and end the process where the configuration says so."""
        return self._ask(self._unload())

    def stats(self) -> VllmStats:
        with self._lock:
            self._count_time()
            running = min(len(self._calls), self.slots)
            return VllmStats(
                slots=self.slots, running=running, waiting=len(self._calls) - running, version=self._live_version,
                loaded=self._is_loaded, generated_tokens=self._generated,
                idle_share=1 - self._busy_s / max(self._monotonic_s() - self._start_s, 1e-9),
                prefill_computed_tokens=self._computed, prefill_reused_tokens=self._reused,
            )  # fmt: skip

    def close(self) -> None:
        """End what is left with `aborted`, then vLLM's processes. May be called twice."""
        with self._lock:
            was_closed, self._is_closed = self._is_closed, True
        if not was_closed:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _ask(self, work: Coroutine) -> Any:
        with self._lock:
            if self._is_closed:
                work.close()
                raise EngineUnavailable("closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _count_time(self) -> None:
        now_s = self._monotonic_s()
        if self._calls:
            self._busy_s += now_s - self._seen_s
        self._seen_s = now_s

    # The engine's thread

    async def _main(self, ready: threading.Event) -> None:
        self._loop, self._stopping, self._updating = asyncio.get_running_loop(), asyncio.Event(), asyncio.Lock()
        self._client = VllmClient(self._process.socket, self._config.update_s)
        self._updater = Updater(self._process, self._client, self._config, self._go_down, self._go_live)
        watching = asyncio.gather(self._watch(), self._guard())
        ready.set()
        await self._stopping.wait()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await self._drain(FinishReason.ABORTED, "engine closed")
        await self._process.stop()
        await self._client.close()
        self._process.forget()

    async def _watch(self) -> None:
        """For ever: start the process, wait for its death, and where it was to serve bring another to that."""
        async with self._updating:
            if self._process.pid is None:
                try:
                    await self._process.start(self._client)
                except Silent as error:
                    log.error("vLLM did not start: %s", error)
        while True:
            await self._process.died()
            async with self._updating:
                if self._process.pid is None and self._is_wanted and self._good is not None:
                    log.error("vLLM died: %s", self._process.last_words())
                    version = self._good.version
                    await self._update(after(Update(Phase.SERVING, version, version), Outcome.SILENT), self._good)
            await asyncio.sleep(0.1)

    async def _guard(self) -> None:
        """For ever: an engine that has calls and says nothing of any of them hangs, and nobody else would find out: without tokens there is no
        batch, and without a batch no update."""
        while True:
            await asyncio.sleep(GUARD_EVERY_S)
            now_s = self._monotonic_s()
            if not self._tasks or self._updating.locked():
                self._moved_s = now_s
            elif now_s - self._moved_s > self._config.stall_s:
                log.error("vLLM has %d calls and sampled nothing for %.0f s", len(self._tasks), now_s - self._moved_s)
                await self._replace()

    async def _load(self, source: Path, version: int, checksum: str | None) -> None:
        weights = await asyncio.to_thread(self._shape.publish, source, version, checksum)
        async with self._updating:
            self._is_wanted = True
            phase = Phase.STARTING if self._process.pid is None else Phase.PAUSING
            good = self._good.version if self._good else None
            over = await self._update(Update(phase, version, good), weights)
        if over.phase is Phase.LOST:
            raise EngineLost(f"version {version}: {'; '.join(self._updater.troubles)}"[:2000])
        if over.target != version:
            raise WeightsRefused(f"{'; '.join(self._updater.troubles)}; version {over.target} serves again"[:2000])

    async def _update(self, update: Update, weights: Published) -> Update:
        known = {w.version: w for w in (self._good, weights) if w is not None}
        over = await self._updater.run(update, known)
        if over.phase is Phase.SERVING:
            self._good = known[over.target]
        with self._lock:
            self._is_loaded = over.phase is Phase.SERVING
        return over

    async def _unload(self) -> int:
        with self._lock:
            self._is_loaded = False
        self._is_wanted = False
        moved = await self._drain(FinishReason.MIGRATED)
        async with self._updating:
            if self._config.on_release == "stop":
                await self._process.stop()
        return moved

    def _go_down(self) -> None:
        """The process is gone or about to be killed: calls go on elsewhere, with the tokens they have."""
        with self._lock:
            self._is_loaded = False
        for call in self._calls.values():
            call.ending = call.ending or FinishReason.MIGRATED
        for task in self._tasks.values():
            task.cancel()

    def _go_live(self, version: int) -> None:
        self._live_version = version

    # Calls

    def _begin(self, call: Call) -> None:
        request, params = call.request, call.request.params
        if call.ending is not None or not self._is_loaded:
            return self._finish(call, call.ending or FinishReason.MIGRATED, call.detail)
        if request.resume_output_ids[-1:] and request.resume_output_ids[-1] in params.stop_token_ids:
            return self._finish(call, FinishReason.STOP)
        if len(request.resume_output_ids) >= params.max_tokens:
            return self._finish(call, FinishReason.LENGTH)
        if not self._tasks:
            self._moved_s = self._monotonic_s()
        self._tasks[request.call_id] = asyncio.create_task(self._stream(call))

    async def _stream(self, call: Call) -> None:
        finish, detail = FinishReason.MIGRATED, ""
        try:
            async for delta in self._client.generate(body(call.name, call.request, self.context_max)):
                if delta.error:
                    finish, detail = await self._judge(), delta.error
                    break
                self._moved_s = self._monotonic_s()
                self._generated += len(delta.ids)
                self._reused += delta.cached_tokens
                self._computed += delta.prompt_tokens - delta.cached_tokens
                call.take(delta, self._live_version)
                if delta.finish:
                    finish = ENDS.get(delta.finish, FinishReason.ERROR)
                elif call.is_due and not call.deliver():
                    self._end([call], FinishReason.ABORTED, "on_tokens raised")
        except asyncio.CancelledError:
            finish = call.ending or FinishReason.MIGRATED
        except Silent as error:
            finish, detail = FinishReason.MIGRATED, str(error)
        except Refused as error:
            finish, detail = FinishReason.ERROR if error.status < 500 else await self._judge(), str(error)
        except (LabelsDiffer, ValueError, KeyError, TypeError) as error:
            finish, detail = FinishReason.ERROR, f"{type(error).__name__}: {error}"
        if call.ending is not None and finish is FinishReason.MIGRATED:
            finish, detail = call.ending, call.detail
        self._finish(call, finish, detail)

    async def _judge(self) -> FinishReason:
        """Of a call that vLLM says has failed: an error of its own, or of an engine that is gone while its server still answers."""
        if await self._client.healthy():
            return FinishReason.ERROR
        await self._replace()
        return FinishReason.MIGRATED

    async def _replace(self) -> None:
        """End a process that is of no use; `_watch` sees it and starts another."""
        with self._lock:
            self._is_loaded = False
        if not self._updating.locked():
            await self._process.stop()

    def _end(self, calls: list[Call], reason: FinishReason, detail: str = "") -> None:
        """Ask vLLM to end them, so that it says which versions sampled what they have; those without a token are cut off at once."""
        streaming = []
        for call in calls:
            call.ending, call.detail = call.ending or reason, call.detail or detail
            task = self._tasks.get(call.request.call_id)
            if task is not None and call.sampled:
                streaming.append(call.name)
                self._loop.call_later(ABORT_S, task.cancel)
            elif task is not None:
                task.cancel()
        if streaming:
            asyncio.create_task(self._abort(streaming)).add_done_callback(lambda done: done.exception())

    async def _abort(self, names: list[str]) -> None:
        with contextlib.suppress(Silent, Refused):
            await self._client.abort(names)

    async def _drain(self, reason: FinishReason, detail: str = "") -> int:
        calls, tasks = list(self._calls.values()), list(self._tasks.values())
        self._end(calls, reason, detail)
        if tasks:
            await asyncio.wait(tasks)
        return len(calls)

    def _finish(self, call: Call, reason: FinishReason, detail: str = "") -> None:
        call_id = call.request.call_id
        self._tasks.pop(call_id, None)
        with self._lock:
            self._count_time()
            self._calls.pop(call_id, None)
        call.deliver(reason, detail)
