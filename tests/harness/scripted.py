"""The scripted engine, a tool of these tests: plays given outputs as tokens, through a cell's real service, the real tokenizer and the real parser.

    Script   parts in order: [{"when": regex, "say": [output, …]}]; the first part whose regex is found in the prompt's text answers, with the
             next of its outputs (the last one again and again). The same prompt is answered the same again: a call that moved, or was asked again

An output that begins with HOLD stops half-way in its first try, until its cell drains or aborts it, or loads other weights. What was sampled is
noted in a file, with the prompt as it came: what records are held against.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.rollout.core.template import ChatTemplate
from services.rollout.engine.emulated import EmulatedStats
from services.rollout.engine.requests import Chunk, EngineUnavailable, FinishReason, GenerateRequest, OnTokens

HOLD = "<<hold>>"


def logprob(index: int) -> float:
    """Of the output's token `index`: all different, so that a shift would show, and exact in float32."""
    return -(index + 1) / 1024


class Script:
    """Shared by all cells of a process."""

    def __init__(self, file: Path, template: ChatTemplate) -> None:
        self._parts = [
            (re.compile(part["when"], re.DOTALL), list(part["say"])) for part in json.loads(file.read_text())
        ]
        self._template = template
        self._said: dict[tuple[int, ...], str] = {}

    def answer(self, prompt_ids: list[int]) -> tuple[list[int], bool]:
        """Output tokens without the end of the turn, and whether it is to be held here."""
        key = tuple(prompt_ids)
        is_first = key not in self._said
        if is_first:
            self._said[key] = self._next(self._template.decode(prompt_ids))
        text = self._said[key]
        return self._template.encode(text.removeprefix(HOLD)), is_first and text.startswith(HOLD)

    def _next(self, prompt: str) -> str:
        for when, outputs in self._parts:
            if when.search(prompt):
                return outputs.pop(0) if len(outputs) > 1 else outputs[0]
        return "The script has nothing to say to this."


@dataclass(eq=False)
class _Held:
    request: GenerateRequest
    on_tokens: OnTokens
    rest: list[int]
    sampled: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class ScriptedEngine:
    """The interface of `Engine`; every call but a held one ends at once. Starts unloaded."""

    def __init__(self, cell: str, script: Script, notes: Path) -> None:
        self._cell, self._script, self._notes = cell, script, notes
        self._lock = threading.RLock()
        self._held: dict[str, _Held] = {}
        self._version, self._is_loaded = 0, False

    def submit(self, request: GenerateRequest, on_tokens: OnTokens) -> None:
        with self._lock:
            if not self._is_loaded:
                raise EngineUnavailable("weights are unloaded")
            ids, is_held = self._script.answer(request.prompt_ids)
            ids = [*ids, request.params.stop_token_ids[0]][: request.params.max_tokens]
            call = _Held(request, on_tokens, ids[len(request.resume_output_ids) :])
            if not is_held:
                self._go_on(call, len(call.rest), FinishReason.STOP)
                return
            self._held[request.call_id] = call
            self._go_on(call, len(call.rest) // 2, None)
            self._note("held", call)

    def abort(self, call_id: str, reason: str = "") -> None:
        with self._lock:
            if (call := self._held.pop(call_id, None)) is not None:
                self._go_on(call, 0, FinishReason.ABORTED)

    def drain(self) -> int:
        with self._lock:
            held, self._held = self._held, {}
            for call in held.values():
                self._go_on(call, 0, FinishReason.MIGRATED)
            return len(held)

    def unload(self) -> int:
        self._is_loaded = False
        return self.drain()

    def load(self, source: Any, version: int, checksum: str | None = None) -> None:
        with self._lock:
            self._version, self._is_loaded = version, True
            held, self._held = self._held, {}
            for call in held.values():
                self._go_on(call, len(call.rest), FinishReason.STOP)

    def stats(self) -> EmulatedStats:
        return EmulatedStats(
            slots=8, running=len(self._held), waiting=0, version=self._version, loaded=self._is_loaded, generated_tokens=0, idle_share=0.0,
        )  # fmt: skip

    def close(self) -> None:
        self.drain()

    def _go_on(self, call: _Held, count: int, finish: FinishReason | None) -> None:
        """`count` more tokens, in chunks as asked for, under the version that is live now."""
        new, call.rest = call.rest[:count], call.rest[count:]
        at = len(call.request.resume_output_ids) + len(call.sampled)
        call.sampled += new
        call.versions += [self._version] * len(new)
        if finish is not None:
            self._note(str(finish), call)
        size = max(1, min(call.request.chunk_tokens, 1 << 20))
        pieces = [new[start : start + size] for start in range(0, len(new), size)] or [[]]
        for index, piece in enumerate(pieces):
            logprobs = [logprob(at + offset) for offset in range(len(piece))]
            at += len(piece)
            last = finish if index == len(pieces) - 1 else None
            call.on_tokens(Chunk(call.request.call_id, piece, logprobs, [self._version] * len(piece), last))

    def _note(self, event: str, call: _Held) -> None:
        request = call.request
        note = {
            "event": event, "cell": self._cell, "call_id": request.call_id.rpartition(".")[0], "prompt_ids": request.prompt_ids,
            "resumed_ids": request.resume_output_ids, "ids": call.sampled, "versions": call.versions,
        }  # fmt: skip
        with self._notes.open("a") as file:
            file.write(json.dumps(note) + "\n")
