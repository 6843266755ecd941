"""The engine's thread: commands, admission, one forward, sampling, delivery, over and over.

    callers' threads                       engine thread
    submit, abort ──────▶ inbox ──▶ commands ▶ admit ▶ plan ▶ forward ▶ sample ▶ on_tokens ─┐
    drain, load_weights,    ▲          ▲                                                    │
    unload, load: wait ─────┘          └────────────────────────────────────────────────────┘

Only the engine's thread touches slots, keys and live weights, and commands run between two steps: hence a token's policy
version is the one its forward pass ran under, and no lock is held while computing. `submit` and `abort` never wait; the
other commands wait until done and must not be called from `on_tokens`.

Give the engine a process whose other threads are mostly idle. A step of a small model is some 150 short operations, each
of which gives the interpreter lock away; a second thread that computes in Python took four fifths of the decode rate
(`sys.setswitchinterval(1e-4)` doubled what was left).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import torch

from services.rollout.engine.requests import (
    CallExists,
    Chunk,
    ContextTooLong,
    EmptyPrompt,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    OnTokens,
    UnknownToken,
)
from services.rollout.engine.runner import Runner
from services.rollout.engine.sampling import sample
from services.rollout.engine.weights import WeightSource


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the start, and the state now. prefill_*_tokens are prompt tokens, computed or found in a slot."""

    slots: int
    running: int
    waiting: int
    oldest_wait_s: float
    version: int
    loaded: bool
    steps: int
    generated_tokens: int
    prefill_computed_tokens: int
    prefill_reused_tokens: int
    finished: dict[str, int]
    """Calls by finish reason."""
    idle_share: float
    """Share of the time since the start in which there was nothing to compute."""


@dataclass(slots=True, eq=False)
class _Call:
    request: GenerateRequest
    prefix: np.ndarray
    """[prompt and resumed tokens] int64"""
    on_tokens: OnTokens
    submitted_s: float
    slot: int = -1
    sampled: int = 0
    """Output tokens so far, resumed ones included."""
    new_tokens: list[int] = field(default_factory=list)
    new_logprobs: list[float] = field(default_factory=list)
    new_versions: list[int] = field(default_factory=list)


class Engine:
    """Continuous batching of a causal language model over `slots` contexts of at most `context_max` tokens.

    `model_dir` is a transformers model whose layers are all full attention (Qwen3, Llama and their like); others are
    refused. `version` is the policy version of the weights found there. Memory for keys and values is taken at once:
    2 · layers · slots · kv_heads · context_max · head_dim elements.
    """

    def __init__(
        self, model_dir: str, slots: int, context_max: int, device: str = "cpu", dtype: str = "float32", threads: int = 1,
        version: int = 0, monotonic_s: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self.slots, self.context_max = slots, context_max
        self._threads, self._monotonic_s = threads, monotonic_s
        self._runner = Runner(model_dir, slots, context_max, device, dtype, version)
        self._temperatures, self._top_ps = np.ones(slots), np.ones(slots)
        self._seeds = np.zeros(slots, np.uint64)
        self._waiting: deque[_Call] = deque()
        self._running: dict[int, _Call] = {}
        """By slot, in order of admission."""
        self._lock = threading.Condition()
        self._inbox: deque[Callable[[], None]] = deque()
        self._calls: dict[str, _Call] = {}
        """Every call not yet finished; with the inbox and `_closed`, the only state that callers' threads share."""
        self._closed = False
        self._finished: dict[str, int] = {}
        self._loaded = True
        self._generated_tokens = 0
        self._start_s, self._idle_s = monotonic_s(), 0.0
        self._thread = threading.Thread(target=self._turn, name="gyre-engine", daemon=True)
        self._thread.start()

    # -- callers' side

    def submit(self, request: GenerateRequest, on_tokens: OnTokens) -> None:
        """Queue a call. Raises EmptyPrompt, ContextTooLong, UnknownToken, CallExists, EngineUnavailable; what fails later
        is told by the last chunk."""
        prefix = np.array([*request.prompt_ids, *request.resume_output_ids], np.int64)
        if not request.prompt_ids:
            raise EmptyPrompt(request.call_id)
        if len(prefix) > self.context_max - 1:
            raise ContextTooLong(len(prefix), self.context_max)
        if prefix.min() < 0 or prefix.max() >= self._runner.vocab_size:
            # in a batch, one such id would fail the forward of every other call
            raise UnknownToken(f"token ids {prefix.min()} to {prefix.max()}, vocabulary {self._runner.vocab_size}")
        call = _Call(request, prefix, on_tokens, self._monotonic_s(), sampled=len(request.resume_output_ids))
        with self._lock:
            if self._closed or not self._loaded:
                raise EngineUnavailable("closed" if self._closed else "weights are unloaded")
            if request.call_id in self._calls:
                raise CallExists(request.call_id)
            self._calls[request.call_id] = call
            self._inbox.append(lambda: self._enqueue(call))
            self._lock.notify()

    def abort(self, call_id: str, reason: str = "") -> None:
        """End a call between two steps with `aborted`; unknown or finished calls are ignored."""

        def end() -> None:
            if call := self._calls.get(call_id):
                self._finish(call, FinishReason.ABORTED, reason)

        with self._lock:
            self._inbox.append(end)
            self._lock.notify()

    def drain(self) -> int:
        """End every running and waiting call with `migrated`; the number of calls, after their last chunks were given."""
        return self._ask(lambda: self._finish_all(FinishReason.MIGRATED))

    def load_weights(self, source: WeightSource, version: int, checksum: str | None = None) -> None:
        """Take new weights in flight. Running calls go on, their later tokens carry `version`.

        `checksum` is the sha256 of the safetensors file. Reading and checking happen on the caller's thread, on staged
        copies (twice the weights' memory meanwhile). Raises WeightsRefused with the live weights untouched.
        """
        staged = self._runner.stage(source, checksum)

        def swap() -> None:
            if not self._loaded:
                raise EngineUnavailable("weights are unloaded: use load")
            self._runner.set_weights(staged, version)

        self._ask(swap)

    def unload(self) -> int:
        """Drain, then free weights and keys; `submit` is refused until `load`. The number of calls that were migrated."""

        def free() -> int:
            with self._lock:
                self._loaded = False
            moved = self._finish_all(FinishReason.MIGRATED)
            self._runner.unload()
            return moved

        return self._ask(free)

    def load(self, source: WeightSource, version: int, checksum: str | None = None) -> None:
        """After `unload`: weights (checked as in `load_weights`) and keys again. On a loaded engine, the same as load_weights."""
        staged = self._runner.stage(source, checksum)

        def take() -> None:
            self._runner.set_weights(staged, version)
            self._loaded = True

        self._ask(take)

    def stats(self) -> EngineStats:
        """A copy, roughly of one moment."""
        with self._lock:
            now_s = self._monotonic_s()
            waiting = [call.submitted_s for call in self._calls.values() if call.slot < 0]
            running, finished = len(self._calls) - len(waiting), dict(self._finished)
        runner = self._runner
        return EngineStats(
            slots=self.slots, running=running, waiting=len(waiting), oldest_wait_s=now_s - min(waiting, default=now_s),
            version=runner.table.live_version, loaded=self._loaded, steps=runner.steps,
            generated_tokens=self._generated_tokens, prefill_computed_tokens=runner.prefill_computed_tokens,
            prefill_reused_tokens=runner.prefill_reused_tokens, finished=finished,
            idle_share=self._idle_s / max(now_s - self._start_s, 1e-9),
        )  # fmt: skip

    def close(self) -> None:
        """End what is left with `aborted` and stop the thread. May be called twice."""
        with self._lock:
            self._closed = True
            self._lock.notify()
        self._thread.join()

    def _ask(self, command: Callable[[], object]) -> object:
        """Run `command` between two steps and answer with its result or exception."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("this would wait for the thread it was called on")
        future: Future = Future()

        def answer() -> None:
            try:
                future.set_result(command())
            except Exception as error:
                future.set_exception(error)

        with self._lock:
            if self._closed:
                raise EngineUnavailable("closed")
            self._inbox.append(answer)
            self._lock.notify()
        return future.result()

    # -- engine's thread

    def _turn(self) -> None:
        if self._runner.device.type == "cpu":
            torch.set_num_threads(self._threads)
        with torch.inference_mode():
            while True:
                with self._lock:
                    if not (self._inbox or self._running or self._waiting or self._closed):
                        idle_from_s = self._monotonic_s()
                        self._lock.wait()
                        self._idle_s += self._monotonic_s() - idle_from_s
                    commands, self._inbox = self._inbox, deque()
                    closed = self._closed
                for command in commands:
                    self._guarded(command, self._calls)
                if closed:
                    self._guarded(lambda: self._finish_all(FinishReason.ABORTED, "engine closed"), self._calls)
                    return
                self._guarded(self._admit, self._calls)
                if self._running:
                    self._guarded(self._step, self._running)

    def _enqueue(self, call: _Call) -> None:
        if not self._loaded:
            self._finish(call, FinishReason.MIGRATED)
        elif reason := self._ended(call, call.request.resume_output_ids[-1:], call.sampled):
            self._finish(call, reason)
        else:
            self._waiting.append(call)

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self.slots:
            call = self._waiting.popleft()
            request = call.request
            call.slot = slot = self._runner.acquire(request.session_key, call.prefix)
            self._running[slot] = call
            self._temperatures[slot], self._top_ps[slot] = request.params.temperature, request.params.top_p
            self._seeds[slot] = request.seed()

    def _step(self) -> None:
        slots, logits = self._runner.step(self._running)
        if slots:
            self._take_samples(slots, logits)

    def _guarded(self, work: Callable[[], object], calls: Mapping[str, _Call] | Mapping[int, _Call]) -> None:
        """Whatever fails costs `calls`, and never the thread: all that were asked afterwards would wait for ever."""
        try:
            work()
        except Exception as error:
            # keys may be half written, so nothing held is trusted; the weights were only read
            self._runner.table.forget()
            with self._lock:
                lost = list(calls.values())
            for call in lost:
                self._finish(call, FinishReason.ERROR, f"{type(error).__name__}: {error}")

    def _take_samples(self, slots: list[int], logits: torch.Tensor) -> None:
        calls = [self._running[slot] for slot in slots]
        at = np.array([call.sampled for call in calls], np.uint64)
        ids, logprobs = sample(logits, self._temperatures[slots], self._top_ps[slots], self._seeds[slots], at)
        table = self._runner.table
        version = table.live_version
        self._generated_tokens += len(calls)
        for call, slot, token, logprob in zip(calls, slots, ids.tolist(), logprobs.tolist(), strict=True):
            call.sampled += 1
            call.new_tokens.append(token)
            call.new_logprobs.append(logprob)
            call.new_versions.append(version)
            known = table.known[slot]
            if reason := self._ended(call, (token,), known + 1):
                self._finish(call, reason)
                continue
            table.tokens[slot, known] = token
            table.known[slot] = known + 1
            if len(call.new_tokens) >= call.request.chunk_tokens:
                self._deliver(call)

    def _ended(self, call: _Call, last: list[int] | tuple[int, ...], context: int) -> FinishReason | None:
        params = call.request.params
        if last and last[0] in params.stop_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if call.sampled >= params.max_tokens or context >= self.context_max else None

    def _deliver(self, call: _Call, finish: FinishReason | None = None, detail: str = "") -> None:
        request, reused = call.request, int(self._runner.reused[call.slot]) if call.slot >= 0 else 0
        chunk = Chunk(
            request.call_id, call.new_tokens, call.new_logprobs, call.new_versions, finish, detail,
            min(reused, len(request.prompt_ids)),
        )  # fmt: skip
        call.new_tokens, call.new_logprobs, call.new_versions = [], [], []
        try:
            call.on_tokens(chunk)
        except Exception:
            # nobody listens any more; other calls must not suffer
            if finish is None:
                call.on_tokens = lambda _chunk: None
                self._finish(call, FinishReason.ABORTED, "on_tokens raised")

    def _finish(self, call: _Call, reason: FinishReason, detail: str = "") -> None:
        if call.slot >= 0:
            self._runner.table.release(call.slot)
            del self._running[call.slot]
        elif call in self._waiting:
            self._waiting.remove(call)
        with self._lock:
            del self._calls[call.request.call_id]
            self._finished[reason] = self._finished.get(reason, 0) + 1
        self._deliver(call, reason, detail)

    def _finish_all(self, reason: FinishReason, detail: str = "") -> int:
        calls = [*self._running.values(), *self._waiting]
        for call in calls:
            self._finish(call, reason, detail)
        return len(calls)
