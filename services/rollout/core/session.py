"""One attempt's model calls: its tokens, its books of turns, and the replies a retry is answered from."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from msgspec import msgpack, structs

from gyre.errors import InvalidInput
from gyre.records import CallRecorded, Sampling, array, encode
from services.rollout.core.calls_xml import schemas_of
from services.rollout.core.memory import BODIES_MAX, Memory, Values
from services.rollout.core.normal import Chain, Message, assistant, digests_from, goes_on, merged, next_digest, together
from services.rollout.core.numbers import Rounded
from services.rollout.core.render import Renderer
from services.rollout.core.request import ChatRequest
from services.rollout.core.streaming import OutputReader, before_stop
from services.rollout.core.template import ChatTemplate, Encode
from services.rollout.core.toolcalls import NO_SCHEMAS, Parsed, parse
from services.rollout.core.trie import Context, Ids, SessionTrie

TAIL = 32
"""Tokens of a reply's end that are looked at; they have more characters than a quarter of that."""

_decode = msgpack.Decoder(CallRecorded).decode


class Model:
    """Template, tokenizer and rendering of the policy: text and tokens of messages."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.renderer = Renderer(template)
        self.stop_ids = self.renderer.stop_ids

    def again(self, record: CallRecorded) -> Parsed:
        """The message of a call on record: its arguments are those that were given to the harness, whose tools are not on record."""
        parsed = self.read(array(record.output_ids, "int32").tolist(), record.call_id, record.sampling)
        calls = (
            replace(call, arguments=record.tool_payloads.get(call.call_id, call.arguments)) for call in parsed.calls
        )
        return replace(parsed, calls=tuple(calls))

    def read(
        self, output_ids: list[int], call_id: str, sampling: Sampling, tools: Sequence[dict[str, Any]] = ()
    ) -> Parsed:
        """The message these sampled tokens are; the token or text that ended it is none of it."""
        ids = output_ids[:-1] if output_ids and output_ids[-1] in self.stop_ids else output_ids
        text, stop = before_stop(self.template.decode(ids), sampling.stop_sequences)
        family = self.renderer.family
        schemas = schemas_of(tools) if family.has_schemas else NO_SCHEMAS
        parsed = parse(sampling.prefix + text, call_id, self.renderer.think_open, schemas, family)
        if not stop and not parsed.reasoning:
            return parsed
        return replace(
            parsed, stop_sequence=stop, reasoning_tokens=self._reasoning_tokens(ids) if parsed.reasoning else 0
        )

    def reader(self, sampling: Sampling) -> OutputReader:
        """Reads the same while the tokens come."""
        return OutputReader(
            self.template.decode, self.stop_ids, self.renderer.think_open, sampling, self.renderer.family
        )

    def prefix(self, request: ChatRequest) -> str:
        """What a reply is made to begin with: the call of a tool (`force`), the harness's own words (`prefill`). Raises InvalidInput for words that
        hold the model's marks."""
        family = self.renderer.family
        prefill = request.prefill and family.opening + request.prefill
        begun = prefill if request.force is None else family.begin(request.force)
        if request.prefill and any(mark in request.prefill for mark in family.marks):
            raise InvalidInput("a reply cannot go on from the model's own marks")
        return (f"\n{family.think[1]}\n\n" if begun and self.renderer.think_open else "") + begun

    def _reasoning_tokens(self, ids: list[int]) -> int:
        """Tokens up to the one that closes the reasoning; all when none does."""
        close = self.renderer.family.think[1]
        closed_at = bisect_left(range(len(ids)), True, key=lambda at: close in self.template.decode(ids[: at + 1]))
        return min(closed_at + 1, len(ids))


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request becomes."""

    ids: Ids
    parent: Context
    kept: int
    """Tokens shared with the parent's context."""
    digest: bytes
    """Of the conversation this prompt ends."""
    begun: tuple[bytes, Message] | None = None
    """An assistant's message at its end, behind which a turn of its own is sampled all the same, and the digest of what stands before it."""
    has_ids: bool = False
    """As in next_digest."""

    @property
    def delta(self) -> Ids:
        return self.ids[self.kept :]

    def turn_digest(self, reply: Parsed) -> bytes:
        """Of the conversation with the reply when it comes back: consecutive words of an assistant's are one message then. Empty where none was
        begun."""
        if self.begun is None:
            return b""
        before, message = self.begun
        (turn,) = merged([message, reply.message()])
        return next_digest(before, turn, self.has_ids)


@dataclass(frozen=True, slots=True)
class Ready:
    """What a session will know of a record."""

    parsed: Parsed
    replies: tuple[bytes, ...] = ()
    """Digests of the conversation with the reply; none where the call was not answered."""
    packed: bytes = b""
    """The record as a retry is answered from it."""


class Session:
    """State of one attempt; everything in it can be rebuilt from its call records."""

    def __init__(self, sample_id: str, values: Values | None = None) -> None:
        """`values`: what bodies of all sessions have in common; by default those of this one alone."""
        self.sample_id = sample_id
        self.trie = SessionTrie()
        self.payloads: dict[str, str] = {}
        """Tool-call id → arguments exactly as the model wrote them."""
        self._rounded = Rounded()
        self.calls = 0
        self.turns = 0
        """Calls that were answered: abandoned ones are on record and are no turn."""
        self.tokens_sampled = 0
        self.model_wait_s = 0.0
        self.last_at_s = 0.0
        """When its newest call ended."""
        self.next_index = 0
        self._values = values or Values()
        self.memory = Memory(self._values, self.payloads)
        self._chains: list[Chain] = []
        """Of the latest conversations, the newest first."""
        self._parallel: dict[str, tuple[str, int]] = {}
        """As normal.Places."""
        self._by_conversation: dict[bytes, list[bytes]] = {}
        """Digest of a conversation → records of its answered calls as they are encoded: few are ever asked for."""
        self._by_name: dict[str, bytes] = {}
        """The same by the names of calls and of tool calls."""

    def prompt(self, request: ChatRequest, model: Model, encode: Encode | None = None) -> Prompt:
        """Recorded tokens as far as they reach, rendering of the rest; `encode`: how its text becomes ids, where that is not the template's.
        Raises InvalidInput when the template refuses, and what `encode` raises."""
        messages = together(request.messages, self._parallel) if self._parallel else request.messages
        messages = self._rounded.restored(messages, self.payloads)
        digests = digests_from(
            self._values.root_digest(request.tools), messages, self._chains, model.renderer.shows_ids
        )
        others = (chain for chain in self._chains if not goes_on(digests, chain))
        self._chains = [(messages, digests), *others][:BODIES_MAX]
        if (begun := self._begun(request.prefill, digests[-1], model)) is not None:
            return Prompt(begun, *self.trie.place(begun), digests[-1])
        count, known = self.trie.deepest(digests)
        if known is None:
            new = model.renderer.whole(messages, request.tools, self.payloads, encode)
        else:
            new = model.renderer.after_reply(messages, count, known.last_token(), request.tools, self.payloads, encode)
        if prefix := model.prefix(request):
            new = new + model.template.encode(prefix)
        ids = np.concatenate([*(known.pieces() if known is not None else ()), np.array(new, np.int32)])
        parent, kept = self.trie.place(ids, known)
        last = messages[-1]
        begins = (digests[-2], last) if last.role == "assistant" else None
        return Prompt(ids, parent, kept, digests[-1], begins, model.renderer.shows_ids)

    def _begun(self, text: str, before: bytes, model: Model) -> Ids | None:
        """All tokens up to the end of a recorded reply that the harness wants gone on with: they are not rendered anew. None where `text` is no
        such reply, or the reply's tokens say more than it (white space, a stop sequence)."""
        _, known = (
            self.trie.deepest([b"", next_digest(before, assistant(text, ()), model.renderer.shows_ids)])
            if text
            else (0, None)
        )
        if known is None:
            return None
        ids = known.tokens()
        ids = ids[:-1] if int(ids[-1]) in model.stop_ids else ids
        return ids if model.template.decode(ids[-TAIL:].tolist()).endswith(text[-TAIL // 4 :]) else None

    def reply(self, name: str, model: Model) -> Parsed | None:
        """What the call of this name was answered with, or the call that made the tool call of this name; None: neither is on record."""
        if (packed := self._by_name.get(name)) is None:
            return None
        return model.again(_decode(packed))

    def recorded(self, digest: bytes, wanted: Sampling, most: int) -> CallRecorded | None:
        """The record of the same call made before: same conversation, same sampling parameters as `wanted` but the seed. Where an execution's tokens
        run out a repeated call may be `wanted` with fewer than it had the first time, when it had `most` at most.

        Two equal calls that a harness means as two samples cannot be told from a retry: equal histories never fork."""
        for packed in self._by_conversation.get(digest, ()):
            record = _decode(packed)
            had = record.sampling
            same = structs.replace(had, seed=wanted.seed, max_tokens=wanted.max_tokens) == wanted
            if same and wanted.max_tokens <= had.max_tokens <= most:
                return record
        return None

    def ready(self, record: CallRecorded, model: Model, parsed: Parsed | None = None) -> "Ready":
        """What taking it in needs; changes nothing."""
        parsed = parsed or model.again(record)
        if record.finish_reason == "cancelled":
            return Ready(parsed)
        digest = bytes.fromhex(record.message_digest)
        replies = [next_digest(digest, parsed.message(), model.renderer.shows_ids)] if record.output_ids else []
        if replies and record.turn_digest:
            replies.append(bytes.fromhex(record.turn_digest))
        kept = structs.replace(record, prompt_delta=b"", logprobs=b"", versions=b"")  # a reply needs none of them
        return Ready(parsed, tuple(replies), encode(kept))

    def take(self, record: CallRecorded, model: Model, ready: "Ready | None" = None) -> Parsed:
        """Take a record in, fresh or from the bus after a restart; answers the message it is. Repeats change nothing."""
        ready = ready or self.ready(record, model)
        self.next_index = max(self.next_index, record.call_index + 1)
        if self.trie.context(record.call_id) is not None:
            return ready.parsed
        output = array(record.output_ids, "int32")
        self.calls += 1
        self.tokens_sampled += len(output)
        self.model_wait_s += record.wait_s
        self.last_at_s = max(self.last_at_s, record.at_s)
        parent = self.trie.context(record.parent) or self.trie.context("")
        self.trie.add(
            record.call_id, parent, record.parent_tokens, array(record.prompt_delta, "int32"), output, ready.replies
        )
        if record.finish_reason != "cancelled":
            self.turns += 1
            self.payloads.update(record.tool_payloads)
            self._rounded.know(record.tool_payloads)
            if len(record.tool_payloads) > 1:
                self._parallel.update(
                    (name, (record.call_id, index)) for index, name in enumerate(record.tool_payloads)
                )
            self._by_conversation.setdefault(bytes.fromhex(record.message_digest), []).append(ready.packed)
            self._by_name.update(dict.fromkeys((record.call_id, *record.tool_payloads), ready.packed))
            self.memory.recall = partial(self.reply, model=model)
        return ready.parsed
