"""Long new text becomes ids beside the event loop: megabytes of it take seconds, in which nobody else would be served.

request ──▶ its new text ──short──▶ ids, at once
                 └──long──▶ NotYet ──▶ a thread, the library alone (it lets go of the interpreter) ──▶ the request again, its ids known
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.rollout.core.budget import check_concurrency
from services.rollout.core.keys import Claims
from services.rollout.core.options import BadRequest
from services.rollout.core.template import ChatTemplate, Encode
from services.rollout.gateway.running import Open

T = TypeVar("T")

LONG_CHARS = 64 * 1024
"""Text of some 20 ms."""
THREADS = 2
"""Texts that are read at the same time, each of another execution; further ones wait their turn, those of one execution behind each other: however
many it sends, the others wait for one of them."""


class NotYet(Exception):
    """This text is too long to be read while others wait."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{len(text)} characters")
        self.text = text


class LongTexts:
    """Of one gateway."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._threads = ThreadPoolExecutor(THREADS, "long-text")

    async def whenever(self, claims: Claims, entry: Open, make: Callable[[Encode], T], tokens_max: int) -> T:  # fmt: skip
        """`make` of what encodes text, again where a text took its time. While it does it is one of its execution's calls at once. Raises
        Overloaded, and BadRequest for what cannot be `tokens_max` tokens."""
        known: dict[str, list[int]] = {}

        def encode(text: str) -> list[int]:
            if len(text) <= LONG_CHARS:
                return self._template.encode(text)
            if (ids := known.get(text)) is not None:
                return ids
            self._check_size(len(text), tokens_max)
            raise NotYet(text)

        while True:
            try:
                return make(encode)
            except NotYet as missing:
                check_concurrency(claims, len(entry.live) + entry.preparing)
                known[missing.text] = await self._read(entry, missing.text)

    async def _read(self, entry: Open, text: str) -> list[int]:
        """Counted until its thread is free again, also where nobody waits for it any more."""
        entry.preparing += 1
        try:
            await entry.reading.acquire()
        except BaseException:
            entry.preparing -= 1
            raise
        try:
            reading = self._threads.submit(self._template.encode_long, text)
        except BaseException:
            entry.prepared()
            raise
        loop = asyncio.get_running_loop()
        reading.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(entry.prepared))
        return await asyncio.wrap_future(reading)

    def _check_size(self, chars: int, tokens_max: int) -> None:
        most = self._template.token_chars_max
        if most is not None and chars > tokens_max * most:
            raise BadRequest(
                f"prompt is too long: at least {chars // most} tokens > {tokens_max - 1} maximum; the context holds {tokens_max} with the reply",
                "messages", "context_length_exceeded",
            )  # fmt: skip
