"""Attention of a forest block by block, forward and backward, in memory that grows with the tokens and not with their square.

torch's own backward of gathered keys would keep a copy of them for each block, T²/QUERIES_MAX in all; here they are gathered again. The
operators are those that `scaled_dot_product_attention` calls on a CPU; they are named because their backward takes the stored sums.

Shapes: T tokens, H query heads, K key heads, G = H / K, D head dimension, Q and N queries and keys of a block.
"""

from typing import Any

import torch

from services.trainer.packed.forest import Forest
from services.trainer.packed.plan import Block, plan_blocks, visible_QK

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class BlockPlan:
    """Blocks of a forest for one window, with what they need as tensors; made once a forward, used by each layer."""

    def __init__(self, forest: Forest, window: int | None, device: torch.device) -> None:
        self.blocks = plan_blocks(forest, window)
        self._indices = [
            None if len(block.ranges) == 1 else torch.from_numpy(block.keys_K()).to(device) for block in self.blocks
        ]
        self._hidden = [self._tail(forest, block, window).to(device) for block in self.blocks]
        self._masks: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    @staticmethod
    def _tail(forest: Forest, block: Block, window: int | None) -> torch.Tensor:
        return torch.from_numpy(~visible_QK(forest, block, window, block.common))

    def gather(self, number: int, x_KTD: torch.Tensor) -> torch.Tensor:
        """[K, N, D], the block's keys (or values)."""
        block, index = self.blocks[number], self._indices[number]
        if index is None:
            return x_KTD[:, block.ranges[0][0] : block.ranges[0][1]]
        return x_KTD.index_select(1, index)

    def scatter(self, number: int, into_KTD: torch.Tensor, x_KND: torch.Tensor) -> None:
        """Add to the block's keys."""
        block, index = self.blocks[number], self._indices[number]
        if index is None:
            into_KTD[:, block.ranges[0][0] : block.ranges[0][1]] += x_KND
        else:
            into_KTD.index_add_(1, index, x_KND)

    def hide(self, number: int, scores: torch.Tensor) -> torch.Tensor:
        """−inf in place where a query does not see a key; scores [..., Q, N]."""
        scores[..., self.blocks[number].common :].masked_fill_(self._hidden[number], float("-inf"))
        return scores

    def mask(self, number: int, dtype: torch.dtype) -> torch.Tensor:
        """[Q, N] additive."""
        block = self.blocks[number]
        return self.hide(number, torch.zeros(block.stop - block.start, block.keys, dtype=dtype))


class BlockAttention(torch.autograd.Function):
    """(query [H, T, D], key [K, T, D], value [K, T, D], plan, scale) → [H, T, D], on a CPU."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, plan: BlockPlan, scale: float
    ) -> torch.Tensor:
        heads, tokens, _ = query.shape
        query_GKTD, groups = _grouped(query, len(key)), heads // len(key)
        out_GKTD = query.new_empty(query_GKTD.shape)
        sums_GKT = torch.empty(groups, len(key), tokens)
        for number, block in enumerate(plan.blocks):
            queries = slice(block.start, block.stop)
            k, v = (plan.gather(number, x).expand(groups, -1, -1, -1) for x in (key, value))
            out, sums = _forward(query_GKTD[:, :, queries], k, v, attn_mask=plan.mask(number, query.dtype), scale=scale)
            out_GKTD[:, :, queries], sums_GKT[:, :, queries] = out, sums
        ctx.save_for_backward(query, key, value, out_GKTD, sums_GKT)
        ctx.plan, ctx.scale = plan, scale
        return _ungrouped(out_GKTD)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        query, key, value, out_GKTD, sums_GKT = ctx.saved_tensors
        plan, groups = ctx.plan, len(query) // len(key)
        query_GKTD, grad_GKTD = _grouped(query, len(key)), _grouped(gradients[0].contiguous(), len(key))
        dquery_GKTD = torch.empty_like(query_GKTD)
        dkey, dvalue = torch.zeros_like(key), torch.zeros_like(value)
        for number, block in enumerate(plan.blocks):
            queries = slice(block.start, block.stop)
            k, v = (plan.gather(number, x).expand(groups, -1, -1, -1) for x in (key, value))
            dq, dk, dv = _backward(
                grad_GKTD[:, :, queries], query_GKTD[:, :, queries], k, v, out_GKTD[:, :, queries], sums_GKT[:, :, queries],
                0.0, False, attn_mask=plan.mask(number, query.dtype), scale=ctx.scale,
            )  # fmt: skip
            dquery_GKTD[:, :, queries] = dq
            plan.scatter(number, dkey, dk.sum(0))
            plan.scatter(number, dvalue, dv.sum(0))
        return _ungrouped(dquery_GKTD), dkey, dvalue, None, None


def _grouped(x_HTD: torch.Tensor, key_heads: int) -> torch.Tensor:
    """[G, K, T, D]: query head h belongs to key head h // G."""
    return x_HTD.unflatten(0, (key_heads, -1)).transpose(0, 1)


def _ungrouped(x_GKTD: torch.Tensor) -> torch.Tensor:
    return x_GKTD.transpose(0, 1).flatten(0, 1)
