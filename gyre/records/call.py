"""The call record (B1): one model call, token by token, never re-tokenised."""

import msgspec

from gyre.records.task import Purpose


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters the tokens were drawn with."""

    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    stop_sequences: list[str] = []
    """The output ends with the token that completes the first of these; the reply ends before it."""
    is_one_call: bool = False
    """The output ends after its first whole tool call."""
    prefix: str = ""
    """What the message begins with before the output: its tokens are the prompt's last, and nobody sampled them."""


class CallRecorded(msgspec.Struct, frozen=True, kw_only=True, tag="call.recorded"):
    """One model call, written durably before the reply leaves the gateway.

    `prompt_delta` holds the prompt's token ids after the first `parent_tokens` tokens of the parent's context (the parent's
    full prompt followed by its output, possibly cut); with no parent it is the whole prompt. Arrays are little-endian bytes (gyre.records.arrays).
    """

    call_id: str
    execution_id: str
    group_id: str
    attempt: int
    call_index: int
    purpose: Purpose
    parent: str
    """call_id of the record whose context this prompt continues; empty when it hangs from the root."""
    parent_tokens: int
    """How many tokens of the parent's context (prompt + output) the prompt begins with."""
    prompt_delta: bytes
    """int32[D]"""
    prompt_tokens: int
    """Length of the full prompt."""
    output_ids: bytes
    """int32[T]; includes the end-of-turn token where the model sampled it."""
    logprobs: bytes
    """float32[T], behaviour log-probability of each output token under the distribution it was drawn from."""
    versions: bytes
    """int32[T], policy version that sampled each token, as the engine labelled it."""
    sampling: Sampling
    finish_reason: str
    """`stop`, `length`, `tool_calls`, `cancelled`, `context`."""
    role: str = "main"
    """main, main-summary, sub-agent, sub-agent-summary, side or unknown (B5)."""
    role_rule: str = ""
    """What decided the role: `header`, a rule's name, `default`; empty where nothing did."""
    thread: str = ""
    """Of a sub-agent's call: what its conversation is known by, so that a gateway that starts anew knows whose a compaction is."""
    message_digest: str = ""
    """Digest of the conversation's normal form up to and including this prompt."""
    turn_digest: str = ""
    """Where the prompt ends with an assistant's words: digest of the conversation with these and the reply as one turn, as it comes back."""
    tool_payloads: dict[str, str] = {}
    """Call id → the arguments text exactly as the model produced it (B2)."""
    cells: list[str] = []
    """Cells that sampled, in order; more than one after a role change moved the call (A6)."""
    delivered: bool = True
    """False: the reply never reached the harness; still on record, and marked."""
    started_at_s: float = 0.0
    first_token_at_s: float = 0.0
    at_s: float = 0.0
    wait_s: float = 0.0
    """Time before a cell took the call."""
    reused_tokens: int = 0
    """Prompt tokens whose keys an engine had from before."""


def output_room(prompt_tokens: int, payload_bytes: int) -> int:
    """How many tokens a call may sample so that its record fits a message of the bus, whatever its prompt has in common with others.

    A prompt's token is an id of 4 bytes. A sampled one is an id, a log-probability, a version, and, where it is of a tool call, its text
    (`tool_payloads`): 12 bytes and TEXT_BYTES with room to spare. RECORD_BYTES are for all else that a record says.
    """
    return max(0, (payload_bytes - RECORD_BYTES - 4 * prompt_tokens) // (12 + TEXT_BYTES))


TEXT_BYTES = 8
RECORD_BYTES = 64 * 1024
