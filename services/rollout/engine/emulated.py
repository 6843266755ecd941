"""An engine that only waits: the speed of a loaded cell without its model, for dry runs.

    submit ─▶ waiting (first come, first served) ─▶ slot ─▶ ends when the cell's work clock says so ─▶ on_tokens

The clock of work W(t) = ∫ v(x) dt runs at the speed v of one call under the present load x = running / slots; a call of `work_s` that got its
slot at W₀ ends at W₀ + work_s. So a change of load costs O(1), however many calls run. How much work a call is, the emulated environment
says in its prompt (`WORK`).
"""

import heapq
import re
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gyre.config.sections import EmulationConfig
from gyre.errors import InvalidInput
from services.rollout.engine.requests import (
    CallExists,
    Chunk,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    OnTokens,
)

TOKENS = 16
"""Tokens that stand for one call: also how finely it is cut when it moves to another cell."""
FILLER, REPLY = ".", '<tool_call>{"name": "work", "arguments": {}}</tool_call>'
WORK = re.compile(r"work=([0-9]+(?:\.[0-9]+)?)s")
"""In the prompt's last message: seconds of the call alone on a cell, of the workload's own time."""
LOGPROB = -1.0
LAST_TOKENS = 2
"""The tool call and the end of the turn: a call that moves has these still to sample."""


def speed_of(emulation: EmulationConfig) -> Callable[[float], float]:
    """Speed of one call, relative to a call alone on its cell, by load x = running / slots."""
    a, p = emulation.load_a, emulation.load_p
    if emulation.load_curve == "hyperbolic":
        return lambda load: 1.0 / (1.0 + a * load)
    return lambda load: min(1.0, (a / load) ** p) if load > 0 else 1.0


class Decoding:
    """Calls that share one cell. Pure: every method is told the time, in the unit of `work_s`."""

    def __init__(self, slots: int, speed: Callable[[float], float]) -> None:
        self._slots = slots
        self._speed = speed
        self._now_s = 0.0
        self.work_s = 0.0
        """The clock of work."""
        self.waiting: deque[tuple[str, float]] = deque()
        self.began: dict[str, float] = {}
        """Running call → work clock when it got its slot, in order of admission."""
        self._ends: list[tuple[float, str]] = []

    def advance(self, now_s: float) -> list[tuple[str, float]]:
        """Let time pass; the calls that have ended until then, in order, each with the work clock at its beginning."""
        ended = []
        while (end_s := self.next_end_s()) is not None and end_s <= now_s:
            self._pass(end_s)
            end_work_s, name = heapq.heappop(self._ends)
            self.work_s = max(self.work_s, end_work_s)
            ended.append((name, self.began.pop(name)))
            self._admit()
        self._pass(now_s)
        return ended

    def add(self, name: str, work_s: float, now_s: float) -> None:
        """`advance` to now_s first."""
        self._now_s = max(self._now_s, now_s)
        self.waiting.append((name, work_s))
        self._admit()

    def remove(self, name: str) -> float:
        """Take a call out; the work clock at its beginning, which is now for one that waited."""
        began = self.began.pop(name, None)
        if began is None:
            self.waiting = deque(entry for entry in self.waiting if entry[0] != name)
            return self.work_s
        self._admit()
        return began

    def next_end_s(self) -> float | None:
        """When the next call ends if nothing changes; None when none runs."""
        while self._ends and self._ends[0][1] not in self.began:
            heapq.heappop(self._ends)
        if not self._ends:
            return None
        return self._now_s + max(0.0, self._ends[0][0] - self.work_s) / self._rate()

    def _rate(self) -> float:
        return self._speed(len(self.began) / self._slots)

    def _pass(self, now_s: float) -> None:
        if now_s > self._now_s:
            self.work_s += (now_s - self._now_s) * self._rate()
            self._now_s = now_s

    def _admit(self) -> None:
        while self.waiting and len(self.began) < self._slots:
            name, work_s = self.waiting.popleft()
            self.began[name] = self.work_s
            heapq.heappush(self._ends, (self.work_s + work_s, name))


@dataclass(slots=True, eq=False)
class _Call:
    request: GenerateRequest
    on_tokens: OnTokens
    work_s: float
    """Scaled, of what is left to sample, the cost of a move included."""
    tokens: int
    """Left to sample."""


@dataclass(frozen=True, slots=True)
class EmulatedStats:
    """The part of EngineStats that a cell's service asks for."""

    slots: int
    running: int
    waiting: int
    version: int
    loaded: bool
    generated_tokens: int
    idle_share: float
    prefill_computed_tokens: int = 0
    prefill_reused_tokens: int = 0


class EmulatedEngine:
    """The interface of `Engine`; a thread sleeps until the next call ends. Starts unloaded."""

    def __init__(
        self, model_dir: Path, slots: int, emulation: EmulationConfig, monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._filler, self._reply = self._tokenizer.token_to_id(FILLER), self._tokenizer.token_to_id(REPLY)
        self._slots, self._emulation, self._monotonic_s = slots, emulation, monotonic_s
        self._decoding = Decoding(slots, speed_of(emulation))
        self._calls: dict[str, _Call] = {}
        self._versions: list[tuple[float, int]] = [(0.0, 0)]
        """(work clock, version live from then on)."""
        self._lock = threading.Condition()
        self._is_loaded, self._is_closed = False, False
        self._generated_tokens = 0
        self._start_s = self._seen_s = monotonic_s()
        self._busy_s = 0.0
        self._thread = threading.Thread(target=self._turn, name="emulated-engine", daemon=True)
        self._thread.start()

    def submit(self, request: GenerateRequest, on_tokens: OnTokens) -> None:
        """Raises InvalidInput for a prompt that no emulated environment wrote, CallExists, EngineUnavailable."""
        found = WORK.findall(self._tokenizer.decode(request.prompt_ids, skip_special_tokens=False))
        if not found:
            raise InvalidInput("an emulated engine serves emulated environments only: the prompt names no work")
        left = max(LAST_TOKENS, TOKENS - len(request.resume_output_ids))
        given = self._emulation
        work_s = float(found[-1]) * left / TOKENS + (given.move_s if request.resume_output_ids else 0.0)
        call = _Call(request, on_tokens, work_s / given.time_scale, left)
        with self._lock:
            if self._is_closed or not self._is_loaded:
                raise EngineUnavailable("closed" if self._is_closed else "weights are unloaded")
            if request.call_id in self._calls:
                raise CallExists(request.call_id)
            self._advance()
            self._calls[request.call_id] = call
            self._decoding.add(request.call_id, call.work_s, self._monotonic_s())
            self._lock.notify()

    def abort(self, call_id: str, reason: str = "") -> None:
        """End a call with the tokens it has."""
        with self._lock:
            self._advance()
            self._cut(call_id, FinishReason.ABORTED, reason)
            self._lock.notify()

    def drain(self) -> int:
        """End every call with `migrated`; how many."""
        with self._lock:
            self._advance()
            names = list(self._calls)
            for name in names:
                self._cut(name, FinishReason.MIGRATED, "")
            return len(names)

    def unload(self) -> int:
        with self._lock:
            self._is_loaded = False
        return self.drain()

    def load(self, source: Any, version: int, checksum: str | None = None) -> None:
        """A role change back costs what the configuration says; new weights on a loaded engine are free, as in flight they nearly are."""
        if not self._is_loaded:
            time.sleep(self._emulation.into_rollout_s / self._emulation.time_scale)
        with self._lock:
            self._advance()
            self._versions.append((self._decoding.work_s, version))
            self._is_loaded = True

    def stats(self) -> EmulatedStats:
        with self._lock:
            self._advance()
            running = len(self._decoding.began)
            return EmulatedStats(
                slots=self._slots, running=running, waiting=len(self._calls) - running, version=self._versions[-1][1],
                loaded=self._is_loaded, generated_tokens=self._generated_tokens,
                idle_share=1 - self._busy_s / max(self._monotonic_s() - self._start_s, 1e-9),
            )  # fmt: skip

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify()
        self._thread.join()

    # Under the lock

    def _turn(self) -> None:
        with self._lock:
            while not self._is_closed:
                self._advance()
                end_s = self._decoding.next_end_s()
                self._lock.wait(None if end_s is None else max(0.0, end_s - self._monotonic_s()))
            for name in list(self._calls):
                self._cut(name, FinishReason.ABORTED, "engine closed")

    def _advance(self) -> None:
        now_s = self._monotonic_s()
        if self._calls:
            self._busy_s += now_s - self._seen_s
        self._seen_s = now_s
        for name, began in self._decoding.advance(now_s):
            call = self._calls.pop(name)
            self._deliver(call, began, call.tokens, FinishReason.STOP)

    def _cut(self, name: str, reason: FinishReason, detail: str) -> None:
        call = self._calls.pop(name, None)
        if call is None:
            return
        began = self._decoding.remove(name)
        share = (self._decoding.work_s - began) / call.work_s if call.work_s else 0.0
        self._deliver(call, began, min(call.tokens - LAST_TOKENS, round(share * call.tokens)), reason, detail)

    def _deliver(self, call: _Call, began: float, count: int, reason: FinishReason, detail: str = "") -> None:
        """`count` tokens, each under the version that was live when its share of the work was done."""
        request = call.request
        ids = [self._filler] * count
        if reason is FinishReason.STOP:
            ids = [*ids[LAST_TOKENS:], self._reply, request.params.stop_token_ids[0]]
        live_from, versions = [at for at, _ in self._versions], []
        for index in range(len(ids)):
            at = began + call.work_s * (index + 1) / call.tokens
            versions.append(self._versions[max(0, bisect_right(live_from, at) - 1)][1])
        self._generated_tokens += len(ids)
        call.on_tokens(Chunk(request.call_id, ids, [LOGPROB] * len(ids), versions, reason, detail))
