"""What a model calls for attention (transformers' attention interface), with the forest as a keyword.

Positions reach the model as `position_ids`, so rotary embeddings are each token's own; who sees whom is the forest's. transformers makes no mask
for an interface it does not know, so nothing of T × T is ever there.
"""

import torch
from transformers import AttentionInterface

from services.trainer.packed import blockwise, flex
from services.trainer.packed.blocks import BlockPlan
from services.trainer.packed.forest import Forest

ATTENTION_NAME = "gyre_packed"
KEYWORD = "gyre_packing"
_REFUSED = ("position_bias", "alibi", "head_mask", "p_attn", "indices")
"""Keywords by which models ask for more than softmax(q·k) over what a token sees."""


class Packing:
    """A forest on its way through a model: what each window needs is made when the first layer asks for it."""

    def __init__(self, forest: Forest, device: torch.device) -> None:
        self.forest = forest
        self.asked: list[tuple[int, int | None]] = []
        """(layer, window) of each call of the attention."""
        self._device = device
        self._plans: dict[int | None, BlockPlan] = {}
        self._masks: dict[int | None, flex.BlockMask] = {}

    def plan(self, window: int | None) -> BlockPlan:
        if window not in self._plans:
            self._plans[window] = BlockPlan(self.forest, window, self._device)
        return self._plans[window]

    def mask(self, window: int | None) -> flex.BlockMask:
        if window not in self._masks:
            self._masks[window] = flex.block_mask(self.forest, window, self._device)
        return self._masks[window]


def packed_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, gyre_packing: Packing | None = None, **others: object,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """query [1, H, T, D], key [1, K, T, D], value [1, K, T, E] → [1, T, H, E]. Raises NotImplementedError for what it cannot do exactly."""
    more = [name for name in _REFUSED if others.get(name) is not None]
    if gyre_packing is None or mask is not None or dropout or more or key.shape[2] != query.shape[2]:
        raise NotImplementedError(f"{type(module).__name__}: no forest, or a mask, dropout, cache or {more} beside it")
    gyre_packing.asked.append((getattr(module, "layer_idx", -1), sliding_window))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.device.type == "cuda" and s_aux is None and key.shape[-1] == value.shape[-1]:
        out = flex.attend(query, key, value, gyre_packing.mask(sliding_window), scale, softcap)[0]
    else:
        plan = gyre_packing.plan(sliding_window)
        out = blockwise.attend(query.squeeze(0), key.squeeze(0), value.squeeze(0), plan, scale, softcap, s_aux)
    return out.transpose(0, 1)[None], None


AttentionInterface.register(ATTENTION_NAME, packed_attention)
