"""Keys and values of all slots, and the attention of one flat row of tokens against them.

A step feeds the model one row of T tokens, [decode rows in slot order | prompt chunks]: linear layers see no padding at
all. transformers hands each layer's new keys and values to `KvStore.update`, then calls the attention registered here.

Shapes: T tokens of the step, H query heads, K key heads, G = H / K, D head dimension, S slots, C context_max.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig

ATTENTION_NAME = "gyre_slots"

RUN_SLACK_TOKENS = 256
"""Neighbouring slots are attended together while the longest is below twice the shortest plus this: a long context does
not make every short one pay for its length."""


@dataclass(slots=True)
class DecodeRun:
    """Rows [start, stop) of the step, in neighbouring slots from `slot` on, against keys [0, keys)."""

    start: int
    stop: int
    slot: int
    keys: int
    mask: torch.Tensor | None
    """[rows, 1, 1, keys] additive; None where all rows have `keys` keys."""


@dataclass(slots=True)
class PromptChunk:
    """Rows [start, stop) of the step are positions [position, position + stop − start) of `slot`."""

    start: int
    stop: int
    slot: int
    position: int
    mask: torch.Tensor | None
    """[rows, keys] additive; None for a chunk at position 0, which is plainly causal."""


class KvStore:
    """Keys and values, per layer two tensors [S, K, C, D]; also the plan of the step in progress.

    Passed to the model as its cache and to the attention as a keyword. Used by the engine's thread only.
    """

    is_compileable = False

    def __init__(self, config: PreTrainedConfig, slots: int, context_max: int, device: torch.device, dtype: torch.dtype):
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, config.num_key_value_heads, context_max, head_dim)
        layers = range(config.num_hidden_layers)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in layers]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in layers]
        self._at = torch.arange(context_max, device=device)
        self.decode_slots = self.decode_positions = self._at[:0]
        self.runs: list[DecodeRun] = []
        self.chunks: list[PromptChunk] = []

    def plan(self, decode: list[tuple[int, int]], chunks: list[tuple[int, int, int]]) -> None:
        """decode: (slot, position) in ascending slot order; chunks: (slot, first position, tokens)."""
        pairs = torch.tensor(decode, dtype=torch.long, device=self._at.device).reshape(-1, 2)
        self.decode_slots, self.decode_positions = pairs[:, 0], pairs[:, 1]
        self.runs = [self._run(decode, start, stop) for start, stop in _split_runs(decode)]
        self.chunks = []
        at = len(decode)
        for slot, position, tokens in chunks:
            mask = None
            if position:
                mask = self._mask((tokens, position + tokens), self._at[position : position + tokens, None])
            self.chunks.append(PromptChunk(at, at + tokens, slot, position, mask))
            at += tokens

    def _run(self, decode: list[tuple[int, int]], start: int, stop: int) -> DecodeRun:
        last = self.decode_positions[start:stop]
        keys = max(position for _, position in decode[start:stop]) + 1
        mask = None
        if any(position + 1 < keys for _, position in decode[start:stop]):
            mask = self._mask((stop - start, 1, 1, keys), last[:, None, None, None])
        return DecodeRun(start, stop, decode[start][0], keys, mask)

    def _mask(self, shape: tuple[int, ...], last: torch.Tensor) -> torch.Tensor:
        """0 for keys up to `last`, −inf after. Additive, since SDPA would turn booleans into this anew in each layer."""
        mask = torch.zeros(shape, dtype=self.keys[0].dtype, device=last.device)
        return mask.masked_fill_(self._at[: shape[-1]] > last, float("-inf"))

    def update(
        self, key: torch.Tensor, value: torch.Tensor, layer_idx: int, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the step's keys and values, [1, K, T, D] each, and answer with the layer's whole store."""
        for store, new in ((self.keys[layer_idx], key[0]), (self.values[layer_idx], value[0])):
            if rows := len(self.decode_slots):
                store[self.decode_slots, :, self.decode_positions] = new[:, :rows].transpose(0, 1)
            for c in self.chunks:
                store[c.slot, :, c.position : c.position + c.stop - c.start] = new[:, c.start : c.stop]
        return self.keys[layer_idx], self.values[layer_idx]

    def copy_prefix(self, source: int, target: int, start: int, stop: int) -> None:
        """Positions [start, stop) of one slot to another."""
        for store in (*self.keys, *self.values):
            store[target, :, start:stop] = store[source, :, start:stop]

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        """query [1, H, T, D] → [1, T, H, D]."""
        _, heads, tokens, head_dim = query.shape
        kv_heads = keys.shape[1]
        out = torch.empty((tokens, heads, head_dim), dtype=query.dtype, device=query.device)
        rows = query[0].transpose(0, 1)
        for r in self.runs:
            # the G query heads of a key head stand where query positions would: keys are read once, never repeated
            folded = rows[r.start : r.stop].reshape(-1, kv_heads, heads // kv_heads, head_dim)
            k, v = (x[r.slot : r.slot + r.stop - r.start, :, : r.keys] for x in (keys, values))
            attended = scaled_dot_product_attention(folded, k, v, attn_mask=r.mask, scale=scale)
            out[r.start : r.stop] = attended.reshape(-1, heads, head_dim)
        for c in self.chunks:
            k, v = (x[c.slot : c.slot + 1, :, : c.position + c.stop - c.start] for x in (keys, values))
            attended = scaled_dot_product_attention(
                query[:, :, c.start : c.stop], k, v, attn_mask=c.mask, is_causal=c.mask is None, scale=scale,
                enable_gqa=kv_heads != heads,
            )  # fmt: skip
            out[c.start : c.stop] = attended[0].transpose(0, 1)
        return out[None]


def _split_runs(decode: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Index ranges of rows in neighbouring slots and of similar length (RUN_SLACK_TOKENS)."""
    runs, start = [], 0
    shortest = longest = decode[0][1] if decode else 0
    for i in range(1, len(decode) + 1):
        if i < len(decode):
            position = decode[i][1]
            low, high = min(shortest, position), max(longest, position)
            if decode[i][0] == decode[i - 1][0] + 1 and high <= 2 * low + RUN_SLACK_TOKENS:
                shortest, longest = low, high
                continue
        runs.append((start, i))
        start = i
        if i < len(decode):
            shortest = longest = decode[i][1]
    return runs


def slot_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _mask: None,
    scaling: float | None = None, sliding_window: int | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, gyre_store: KvStore | None = None, **_kwargs: object,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """transformers' attention interface. Whatever is not plain causal attention is refused rather than left out."""
    if gyre_store is None or sliding_window is not None or softcap is not None or s_aux is not None:
        raise NotImplementedError(f"{type(module).__name__}: windows, soft caps and sinks are not implemented")
    return gyre_store.attend(query, key, value, query.shape[-1] ** -0.5 if scaling is None else scaling), None


AttentionInterface.register(ATTENTION_NAME, slot_attention)
