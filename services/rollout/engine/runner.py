"""The model with its slots: one step computes the next prompt chunks and one token of every decoding row, in one forward."""

from collections.abc import Iterable

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from gyre.errors import ConfigError
from services.rollout.engine.attention import ATTENTION_NAME, KvStore
from services.rollout.engine.slots import SlotTable
from services.rollout.engine.weights import WeightSource, WeightTargets

PREFILL_TOKENS_STEP = 512
"""Prompt tokens computed in one step beside the decoding rows: bounds how long new calls hold up running ones."""

ROWS_MULTIPLE = 16
"""Matrices are filled up to a multiple of this many rows. A product of one to three rows is computed by other kernels than a larger one and
rounds differently; from four rows on a row's result was found to be the same bits among any number of others."""


class Runner:
    """Model, weights, keys and slot table of one engine; used by the engine's thread only, except for `stage`."""

    def __init__(self, model_dir: str, slots: int, context_max: int, device: str, dtype: str, version: int):
        self.device = torch.device(device)
        self.model = AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=getattr(torch, dtype), attn_implementation=ATTENTION_NAME
        )
        self.model.to(self.device).eval().requires_grad_(False)
        config = self.model.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise NotImplementedError(f"{model_dir}: only full attention is implemented, not {sorted(kinds)}")
        positions = getattr(config, "max_position_embeddings", context_max)
        if context_max > positions:
            raise ConfigError(f"context_max {context_max}, but the model has {positions} positions")
        self.vocab_size = self.model.get_input_embeddings().num_embeddings
        self.table = SlotTable(slots, context_max, version)
        self.store: KvStore | None = self._new_store()
        self._targets = WeightTargets(self.model)
        self.steps = self.prefill_computed_tokens = self.prefill_reused_tokens = 0
        self.reused = np.zeros(slots, np.int64)
        """[slots] tokens of the slot's call that were found computed."""

    def stage(self, source: WeightSource, checksum: str | None) -> list[torch.Tensor]:
        """Checked copies for `set_weights`; from any thread. Raises WeightsRefused."""
        return self._targets.stage(source, checksum)

    def set_weights(self, staged: list[torch.Tensor], version: int) -> None:
        """Make staged weights the live ones; keys are allocated again if they were freed."""
        if self.store is None:
            self.store = self._new_store()
            self._targets.replace(staged)
        else:
            self._targets.copy_into_live(staged)
        self.table.set_version(version)

    def unload(self) -> None:
        """Free weights and keys. No call may be running."""
        self._targets.replace(None)
        self.store = None
        self.table.forget()

    def acquire(self, session_key: str, prefix: np.ndarray) -> int:
        """A slot for a new call; one must be idle."""
        slot = self.table.acquire(session_key, prefix)
        self.reused[slot] = self.table.filled[slot]
        self.prefill_reused_tokens += int(self.table.filled[slot])
        return slot

    def step(self, order: Iterable[int]) -> tuple[list[int], torch.Tensor]:
        """One forward for the running slots, given oldest call first.

        The slots that now need a token (those decoding, those whose prompt is complete) and their logits [slots, V].
        """
        table = self.table
        decode, chunks = self._plan(order)
        slots, at = [slot for slot, _ in decode], [position for _, position in decode]
        spans = [(slot, np.arange(start, start + n)) for slot, start, n in chunks]
        tokens = np.concatenate([table.tokens[slots, at], *(table.tokens[slot, span] for slot, span in spans)])
        positions = np.concatenate([np.array(at, np.int64), *(span for _, span in spans)])
        ends = len(decode) - 1 + np.cumsum([n for _, _, n in chunks], dtype=np.int64)
        complete = [i for i, (slot, start, n) in enumerate(chunks) if start + n == table.known[slot]]
        rows = np.concatenate([np.arange(len(decode)), ends[complete]])
        self.store.plan(decode, chunks)
        logits = self.model(
            input_ids=self._filled_up(tokens)[None], position_ids=self._filled_up(positions)[None],
            past_key_values=self.store, use_cache=True, logits_to_keep=self._filled_up(rows), gyre_store=self.store,
        ).logits[0, : len(rows)]  # fmt: skip
        for slot, start, n in [*((slot, position, 1) for slot, position in decode), *chunks]:
            table.filled[slot] = start + n
            self.prefill_computed_tokens += n if start < table.given[slot] else 0
        self.steps += 1
        return slots + [chunks[i][0] for i in complete], logits

    def _plan(self, order: Iterable[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
        """Decode rows (slot, position) in slot order, and prompt chunks (slot, position, tokens), oldest first."""
        table = self.table
        lacking = table.known - table.filled
        decode, chunks, budget = [], [], PREFILL_TOKENS_STEP
        for slot in order:
            if lacking[slot] == 1:
                decode.append((slot, int(table.filled[slot])))
                continue
            if not table.matched[slot]:
                self._match(slot)
            at = int(table.filled[slot])
            if table.matched[slot] and (n := min(budget, int(table.known[slot]) - at)):
                chunks.append((slot, at, n))
                budget -= n
        return sorted(decode), chunks

    def _match(self, slot: int) -> None:
        before = int(self.table.filled[slot])
        if found := self.table.match(slot):
            source, tokens = found
            self.store.copy_prefix(source, slot, before, tokens)
            self.reused[slot] += tokens - before
            self.prefill_reused_tokens += tokens - before

    def _new_store(self) -> KvStore:
        dtype = next(self.model.parameters()).dtype
        return KvStore(self.model.config, self.table.slots, self.table.context_max, self.device, dtype)

    def _filled_up(self, array: np.ndarray) -> torch.Tensor:
        """With zeros, to a multiple of ROWS_MULTIPLE: rows that nobody reads."""
        return torch.from_numpy(np.pad(array, (0, -len(array) % ROWS_MULTIPLE))).to(self.device)
