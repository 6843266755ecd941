"""One attempt's model calls: its tokens, its books of turns, and the replies a retry is answered from."""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import msgpack, structs

from gyre.records import CallRecorded, Sampling, array, encode
from services.rollout.core.memory import BODIES_MAX, Memory, Values
from services.rollout.core.normal import Chain, digests_from, next_digest
from services.rollout.core.render import Renderer
from services.rollout.core.request import ChatRequest
from services.rollout.core.streaming import OutputReader, before_stop
from services.rollout.core.template import ChatTemplate
from services.rollout.core.toolcalls import THINK_CLOSE, Parsed, call_prefix, parse
from services.rollout.core.trie import Context, Ids, SessionTrie

_decode = msgpack.Decoder(CallRecorded).decode


class Model:
    """Template, tokenizer and rendering of the policy: text and tokens of messages."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self.renderer = Renderer(template)
        self.stop_ids = template.stop_ids

    def read(self, output_ids: list[int], call_id: str, sampling: Sampling) -> Parsed:
        """The message these sampled tokens are; the token or text that ended it is none of it."""
        ids = output_ids[:-1] if output_ids and output_ids[-1] in self.stop_ids else output_ids
        text, stop = before_stop(self.template.decode(ids), sampling.stop_sequences)
        parsed = parse(sampling.prefix + text, call_id, self.renderer.think_open)
        if not stop and not parsed.reasoning:
            return parsed
        return replace(
            parsed, stop_sequence=stop, reasoning_tokens=self._reasoning_tokens(ids) if parsed.reasoning else 0
        )

    def reader(self, sampling: Sampling) -> OutputReader:
        """Reads the same while the tokens come."""
        return OutputReader(self.template.decode, self.stop_ids, self.renderer.think_open, sampling)

    def prefix(self, force: str | None) -> str:
        """What a reply that must call a tool is made to begin with (ChatRequest.force)."""
        if force is None:
            return ""
        return (f"\n{THINK_CLOSE}\n\n" if self.renderer.think_open else "") + call_prefix(force)

    def _reasoning_tokens(self, ids: list[int]) -> int:
        """Tokens up to the one that closes the reasoning; all when none does."""
        closed_at = bisect_left(
            range(len(ids)), True, key=lambda at: THINK_CLOSE in self.template.decode(ids[: at + 1])
        )
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

    @property
    def delta(self) -> Ids:
        return self.ids[self.kept :]


class Session:
    """State of one attempt; everything in it can be rebuilt from its call records."""

    def __init__(self, sample_id: str, values: Values | None = None) -> None:
        """`values`: what bodies of all sessions have in common; by default those of this one alone."""
        self.sample_id = sample_id
        self.trie = SessionTrie()
        self.payloads: dict[str, str] = {}
        """Tool-call id → arguments exactly as the model wrote them."""
        self.calls = 0
        self.turns = 0
        """Calls that were answered: abandoned ones are on record and are no turn."""
        self.tokens_sampled = 0
        self.model_wait_s = 0.0
        self.last_at_s = 0.0
        """When its newest call ended."""
        self.next_index = 0
        self._values = values or Values()
        self.memory = Memory(self._values)
        self._chains: deque[Chain] = deque(maxlen=BODIES_MAX)
        """Of the latest requests, the newest first."""
        self._by_conversation: dict[bytes, list[bytes]] = {}
        """Digest of a conversation → records of its answered calls as they are encoded: few are ever asked for."""

    def prompt(self, request: ChatRequest, model: Model) -> Prompt:
        """Recorded tokens as far as they reach, rendering of the rest. Raises InvalidInput when the template refuses."""
        digests = digests_from(self._values.root_digest(request.tools), request.messages, self._chains)
        self._chains.appendleft((request.messages, digests))
        count, known = self.trie.deepest(digests)
        if known is None:
            new = model.renderer.whole(request.messages, request.tools, self.payloads)
        else:
            new = model.renderer.after_reply(request.messages, count, known.last_token(), request.tools, self.payloads)
        if prefix := model.prefix(request.force):
            new = new + model.template.encode(prefix)
        ids = np.concatenate([*(known.pieces() if known is not None else ()), np.array(new, np.int32)])
        parent, kept = self.trie.place(ids, known)
        return Prompt(ids, parent, kept, digests[-1])

    def recorded(self, digest: bytes, wanted: Mapping[str, Any]) -> CallRecorded | None:
        """The record of the same call made before: same conversation, same sampling parameters as `wanted`.

        Two equal calls that a harness means as two samples cannot be told from a retry: equal histories never fork."""
        for packed in self._by_conversation.get(digest, ()):
            record = _decode(packed)
            if all(getattr(record.sampling, name) == value for name, value in wanted.items()):
                return record
        return None

    def take(self, record: CallRecorded, model: Model, parsed: Parsed | None = None) -> Parsed:
        """Take a record in, fresh or from the bus after a restart; answers the message it is. Repeats change nothing."""
        output = array(record.output_ids, "int32")
        parsed = parsed or model.read(output.tolist(), record.call_id, record.sampling)
        self.next_index = max(self.next_index, record.call_index + 1)
        if self.trie.context(record.call_id) is not None:
            return parsed
        self.calls += 1
        self.tokens_sampled += len(output)
        self.model_wait_s += record.wait_s
        self.last_at_s = max(self.last_at_s, record.at_s)
        answered = record.finish_reason != "cancelled"
        parent = self.trie.context(record.parent) or self.trie.context("")
        digest = bytes.fromhex(record.message_digest)
        reply = next_digest(digest, parsed.message()) if answered and len(output) else None
        self.trie.add(record.call_id, parent, record.parent_tokens, array(record.prompt_delta, "int32"), output, reply)
        if answered:
            self.turns += 1
            self.payloads.update(record.tool_payloads)
            kept = structs.replace(record, prompt_delta=b"", logprobs=b"", versions=b"")  # a reply needs none of them
            self._by_conversation.setdefault(digest, []).append(encode(kept))
        return parsed
