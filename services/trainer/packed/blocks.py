"""Blocks of a forest with what attention needs of them as tensors, and attention of one block, forward and backward.

Shapes: T tokens, G groups of K key heads (query head h belongs to key head h // G), Q queries and N keys of a block, D and E dimensions
of keys and values.
"""

from typing import Protocol

import torch

from services.trainer.packed.forest import Forest
from services.trainer.packed.plan import plan_blocks, visible_QK

MASKS_KEPT_PAIRS = 2**24
"""Query–key pairs up to which masks are kept from layer to layer (64 MiB of float32); made anew for each above, so that memory does not follow the
square of a row."""


class BlockPlan:
    """Blocks for one window; made once a forward, used by each layer."""

    def __init__(self, forest: Forest, window: int | None, device: torch.device) -> None:
        self.blocks = plan_blocks(forest, window)
        self._indices = [
            None if len(block.ranges) == 1 else torch.from_numpy(block.keys_K()).to(device) for block in self.blocks
        ]
        self._hidden = [
            torch.from_numpy(~visible_QK(forest, block, window, block.common)).to(device) for block in self.blocks
        ]
        self._masks: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._keeps_masks = sum(block.pairs for block in self.blocks) <= MASKS_KEPT_PAIRS

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

    def mask(self, number: int, query: torch.Tensor) -> torch.Tensor:
        """[Q, N], to be added to scores, of the query's type."""
        mask = self._masks.get((number, query.dtype))
        if mask is None:
            block = self.blocks[number]
            mask = self.hide(number, query.new_zeros(block.stop - block.start, block.keys))
            if self._keeps_masks:
                self._masks[number, query.dtype] = mask
        return mask


class Kernel(Protocol):
    """Attention of one block. query [G, K, Q, D], key [K, N, D], value [K, N, E]."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, plan: BlockPlan, number: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(out [G, K, Q, E], float32 logarithms of the sums [G, K, Q])."""

    def backward(
        self, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
        lse: torch.Tensor, plan: BlockPlan, number: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        """(query's, key's, value's gradient), shaped as these."""


class SdpaKernel:
    """The operators that `scaled_dot_product_attention` calls on a CPU, by name because their backward takes the stored sums."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def forward(self, query, key, value, plan, number):
        key, value = (x.expand(len(query), -1, -1, -1) for x in (key, value))
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, attn_mask=plan.mask(number, query), scale=self._scale
        )

    def backward(self, grad, query, key, value, out, lse, plan, number):
        key, value = (x.expand(len(query), -1, -1, -1) for x in (key, value))
        dquery, dkey, dvalue = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, query, key, value, out, lse, 0.0, False, attn_mask=plan.mask(number, query), scale=self._scale
        )
        return dquery, dkey.sum(0), dvalue.sum(0)


class ExactKernel:
    """Written out in float32, for what the operators do not do: soft caps (Gemma 2), sinks (gpt-oss), values of another width.

    With z the scores, p = exp(z − lse) and δ = Σ out · grad by query, dz = p (grad·v − δ); a sink s takes its share of the sum and gives
    nothing, so ds = −Σ exp(s − lse) δ.
    """

    def __init__(self, scale: float, softcap: float | None, sinks_GK: torch.Tensor | None) -> None:
        self._scale, self._softcap, self._sinks_GK = scale, softcap, sinks_GK
        self.dsinks_GK = None if sinks_GK is None else torch.zeros_like(sinks_GK, dtype=torch.float32)

    def forward(self, query, key, value, plan, number):
        z = plan.hide(number, self._scores(query, key))
        lse = z.logsumexp(-1)
        if self._sinks_GK is not None:
            lse = torch.logaddexp(lse, self._sinks_GK[..., None].float())
        return ((z - lse[..., None]).exp() @ value.float()).to(query.dtype), lse

    def backward(self, grad, query, key, value, out, lse, plan, number):
        grad, value = grad.float(), value.float()
        z = self._scores(query, key)
        slope = 1.0 if self._softcap is None else 1 - (z / self._softcap).square()
        p = (plan.hide(number, z) - lse[..., None]).exp()
        delta = (grad * out.float()).sum(-1)
        dz = p * (grad @ value.transpose(-1, -2) - delta[..., None]) * slope * self._scale
        if self._sinks_GK is not None:
            self.dsinks_GK -= ((self._sinks_GK[..., None].float() - lse).exp() * delta).sum(-1)
        dkey = (dz.transpose(-1, -2) @ query.float()).sum(0)
        dvalue = (p.transpose(-1, -2) @ grad).sum(0)
        return (dz @ key.float()).to(query.dtype), dkey.to(query.dtype), dvalue.to(query.dtype)

    def _scores(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        z = (query.float() @ key.float().transpose(-1, -2)) * self._scale
        return z if self._softcap is None else self._softcap * torch.tanh(z / self._softcap)
