"""Keys and values of all slots, and the attention of one flat row of tokens against them.

A step feeds the model one row of T tokens, [decode rows in slot order | prompt chunks | a few that fill up]. transformers hands
each layer's new keys and values to `KvStore.update`, then calls the attention registered here.

On a CPU every token is attended by itself, prompt tokens too, over a number of keys that follows from its position: what is
computed of a token is then bit for bit the same whatever else is in the step, and whether it was sampled, computed from a
prompt or computed again. Kernels add up in an order that depends on their shapes, so shapes must not depend on company. On
other devices matrix products are not that steady anyway, and prompt chunks are attended whole, which is faster.

Shapes: T tokens of the step, H query heads, K key heads, G = H / K, D head dimension, S slots, C context_max.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedConfig

ATTENTION_NAME = "gyre_slots"

RUN_SLACK_TOKENS = 256
"""Neighbouring slots are attended together while the longest is below twice the shortest plus this: a long context does
not make every short one pay for its length."""

KEYS_STEP = 128
"""One by one, tokens are attended over the next multiple of this (or the whole slot): small enough to waste little, large enough that
neighbouring slots often share a run."""


@dataclass(slots=True)
class Run:
    """Rows [start, stop) of the step, each a token by itself against keys [0, keys): in neighbouring slots from `slot` on, or all in `slot`."""

    start: int
    stop: int
    slot: int
    keys: int
    mask: torch.Tensor | None
    """[rows, 1, 1, keys] additive; None where all rows have `keys` keys."""
    in_one_slot: bool = False


@dataclass(slots=True)
class PromptChunk:
    """Rows [start, stop) of the step are positions [position, position + stop − start) of `slot`."""

    start: int
    stop: int
    slot: int
    position: int
    mask: torch.Tensor | None = None
    """[rows, keys] additive; None for a chunk at position 0, which is plainly causal, and where rows are attended one by one."""


class KvStore:
    """Keys and values, per layer two tensors [S, K, C, D]; also the plan of the step in progress.

    Passed to the model as its cache and to the attention as a keyword. Used by the engine's thread only.
    """

    is_compileable = False

    def __init__(
        self, config: PreTrainedConfig, slots: int, context_max: int, device: torch.device, dtype: torch.dtype
    ):
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (slots, config.num_key_value_heads, context_max, head_dim)
        layers = range(config.num_hidden_layers)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in layers]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in layers]
        self._at = torch.arange(context_max, device=device)
        self._one_by_one = device.type == "cpu"
        self.decode_slots = self.decode_positions = self._at[:0]
        self.runs: list[Run] = []
        self.chunks: list[PromptChunk] = []

    def plan(self, decode: list[tuple[int, int]], chunks: list[tuple[int, int, int]]) -> None:
        """decode: (slot, position) in ascending slot order; chunks: (slot, first position, tokens)."""
        pairs = torch.tensor(decode, dtype=torch.long, device=self._at.device).reshape(-1, 2)
        self.decode_slots, self.decode_positions = pairs[:, 0], pairs[:, 1]
        self.runs = [self._run(decode, start, stop) for start, stop in _split_runs(decode, self._go_together)]
        self.chunks = []
        at = len(decode)
        for slot, position, tokens in chunks:
            chunk = PromptChunk(at, at + tokens, slot, position)
            if self._one_by_one:
                self.runs += self._runs_of(chunk)
            elif position:
                chunk.mask = self._mask((tokens, position + tokens), self._at[position : position + tokens, None])
            self.chunks.append(chunk)
            at += tokens

    def _go_together(self, shortest: int, longest: int) -> bool:
        """Whether rows at these positions may be attended in one run."""
        if self._one_by_one:
            return self._keys_of(shortest) == self._keys_of(longest)
        return longest <= 2 * shortest + RUN_SLACK_TOKENS

    def _keys_of(self, position: int) -> int:
        """Keys that a token at `position` is attended over, the ones after it masked: a function of the position alone."""
        return min((position // KEYS_STEP + 1) * KEYS_STEP, len(self._at))

    def _run(self, decode: list[tuple[int, int]], start: int, stop: int) -> Run:
        last = self.decode_positions[start:stop]
        longest = max(position for _, position in decode[start:stop])
        keys = self._keys_of(longest) if self._one_by_one else longest + 1
        mask = None
        # with a mask and without one are two kernels: one by one it is always the same
        if self._one_by_one or any(position + 1 < keys for _, position in decode[start:stop]):
            mask = self._mask((stop - start, 1, 1, keys), last[:, None, None, None])
        return Run(start, stop, decode[start][0], keys, mask)

    def _runs_of(self, chunk: PromptChunk) -> list[Run]:
        """A chunk's rows one by one, in runs of the same number of keys."""
        runs, start = [], chunk.start
        while start < chunk.stop:
            position = chunk.position + start - chunk.start
            keys = self._keys_of(position)
            rows = min(chunk.stop - start, keys - position)
            mask = self._mask((rows, 1, 1, keys), self._at[position : position + rows, None, None, None])
            runs.append(Run(start, start + rows, chunk.slot, keys, mask, in_one_slot=True))
            start += rows
        return runs

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
        out = torch.zeros((tokens, heads, head_dim), dtype=query.dtype, device=query.device)
        rows = query[0].transpose(0, 1)
        for r in self.runs:
            # the G query heads of a key head stand where query positions would: keys are read once, never repeated
            n = r.stop - r.start
            folded = rows[r.start : r.stop].reshape(n, kv_heads, heads // kv_heads, head_dim)
            slots = slice(r.slot, r.slot + (1 if r.in_one_slot else n))
            k, v = (x[slots, :, : r.keys].expand(n, -1, -1, -1) for x in (keys, values))
            attended = scaled_dot_product_attention(folded, k, v, attn_mask=r.mask, scale=scale)
            out[r.start : r.stop] = attended.reshape(n, heads, head_dim)
        for c in () if self._one_by_one else self.chunks:
            k, v = (x[c.slot : c.slot + 1, :, : c.position + c.stop - c.start] for x in (keys, values))
            attended = scaled_dot_product_attention(
                query[:, :, c.start : c.stop], k, v, attn_mask=c.mask, is_causal=c.mask is None, scale=scale,
                enable_gqa=kv_heads != heads,
            )  # fmt: skip
            out[c.start : c.stop] = attended[0].transpose(0, 1)
        return out[None]


def _split_runs(decode: list[tuple[int, int]], go_together: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Index ranges of rows in neighbouring slots whose shortest and longest positions `go_together`."""
    runs, start = [], 0
    shortest = longest = decode[0][1] if decode else 0
    for i in range(1, len(decode) + 1):
        if i < len(decode):
            position = decode[i][1]
            low, high = min(shortest, position), max(longest, position)
            if decode[i][0] == decode[i - 1][0] + 1 and go_together(low, high):
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
