"""Blocks of a forest with what attention needs of them as tensors, and attention of one block, forward and backward.

Shapes: K key heads, each with G query heads (query head h belongs to key head h // G); Q queries and N keys of a block, R = Q·G its rows (a query's
heads side by side), D and E dimensions of keys and values.
"""

from typing import Protocol

import torch

from services.trainer.packed.forest import Forest
from services.trainer.packed.plan import plan_blocks, visible_QK
from services.trainer.packed.trail import plan_moves

MASKS_KEPT_MAX = 2**24
"""Rows times keys up to which masks are kept from layer to layer (64 MiB of float32); made anew for each above, so that memory does not follow the
square of a row."""


class BlockPlan:
    """Blocks for one window; made once a forward, used by each layer."""

    def __init__(self, forest: Forest, window: int | None, device: torch.device) -> None:
        self.blocks = plan_blocks(forest, window)
        self.moves, self.last_leave, self.places = plan_moves(self.blocks, forest.positions_T)
        self._hidden = [
            torch.from_numpy(~visible_QK(forest, block, window, block.common)).to(device) for block in self.blocks
        ]
        self._masks: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}
        self._pairs = sum(block.pairs for block in self.blocks)

    def hide(self, number: int, scores: torch.Tensor, groups: int) -> torch.Tensor:
        """−inf in place where a query does not see a key; scores [..., R, N]."""
        later = scores.unflatten(-2, (-1, groups))[..., self.blocks[number].common :]
        later.masked_fill_(self._hidden[number][:, None], float("-inf"))
        return scores

    def mask(self, number: int, query: torch.Tensor, groups: int) -> torch.Tensor:
        """[R, N], to be added to scores, of the query's type."""
        mask = self._masks.get((number, groups, query.dtype))
        if mask is None:
            block = self.blocks[number]
            mask = self.hide(number, query.new_zeros((block.stop - block.start) * groups, block.keys), groups)
            if self._pairs * groups <= MASKS_KEPT_MAX:
                self._masks[number, groups, query.dtype] = mask
        return mask


class Kernel(Protocol):
    """Attention of one block. query [K, R, D], key [K, N, D], value [K, N, E]."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, plan: BlockPlan, number: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(out [K, R, E], float32 logarithms of the sums, to be handed to the backward)."""

    def backward(
        self, grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
        lse: torch.Tensor, plan: BlockPlan, number: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        """(query's, key's, value's gradient), shaped as these."""


class SdpaKernel:
    """The operators that `scaled_dot_product_attention` calls on a CPU, by name because their backward takes the stored sums."""

    def __init__(self, scale: float, groups: int) -> None:
        self._scale, self._groups = scale, groups

    def forward(self, query, key, value, plan, number):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query[None], key[None], value[None], attn_mask=plan.mask(number, query, self._groups), scale=self._scale
        )
        return out.squeeze(0), lse

    def backward(self, grad, query, key, value, out, lse, plan, number):
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad[None], query[None], key[None], value[None], out[None], lse, 0.0, False,
            attn_mask=plan.mask(number, query, self._groups), scale=self._scale,
        )  # fmt: skip
        return tuple(x.squeeze(0) for x in found)


class ExactKernel:
    """Written out in float32, for what the operators do not do: soft caps (Gemma 2), sinks (gpt-oss), values of another width.

    With z the scores, p = exp(z − lse) and δ = Σ out · grad by query, dz = p (grad·v − δ); a sink s takes its share of the sum and gives
    nothing, so ds = −Σ exp(s − lse) δ.
    """

    def __init__(self, scale: float, groups: int, softcap: float | None, sinks_KG: torch.Tensor | None) -> None:
        self._scale, self._groups, self._softcap, self._sinks_KG = scale, groups, softcap, sinks_KG
        self.dsinks_KG = None if sinks_KG is None else torch.zeros_like(sinks_KG, dtype=torch.float32)

    def forward(self, query, key, value, plan, number):
        z = plan.hide(number, self._scores(query, key), self._groups)
        lse = z.logsumexp(-1)
        if self._sinks_KG is not None:
            lse = torch.logaddexp(lse, self._sinks_KR(lse))
        return ((z - lse[..., None]).exp() @ value.float()).to(query.dtype), lse

    def backward(self, grad, query, key, value, out, lse, plan, number):
        grad, value = grad.float(), value.float()
        z = self._scores(query, key)
        slope = 1.0 if self._softcap is None else 1 - (z / self._softcap).square()
        p = (plan.hide(number, z, self._groups) - lse[..., None]).exp()
        delta = (grad * out.float()).sum(-1)
        dz = p * (grad @ value.transpose(-1, -2) - delta[..., None]) * slope * self._scale
        if self._sinks_KG is not None:
            share = (self._sinks_KR(lse) - lse).exp() * delta
            self.dsinks_KG -= share.unflatten(1, (-1, self._groups)).sum(1)
        dkey, dvalue = dz.transpose(-1, -2) @ query.float(), p.transpose(-1, -2) @ grad
        return (dz @ key.float()).to(query.dtype), dkey.to(query.dtype), dvalue.to(query.dtype)

    def _scores(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        z = (query.float() @ key.float().transpose(-1, -2)) * self._scale
        return z if self._softcap is None else self._softcap * torch.tanh(z / self._softcap)

    def _sinks_KR(self, lse_KR: torch.Tensor) -> torch.Tensor:
        """float32, each row's own."""
        return self._sinks_KG.float().repeat(1, lse_KR.shape[1] // self._groups)
