"""What a model calls for attention (transformers' attention interface), with the forest as a keyword.

Positions reach the model as `position_ids`, so rotary embeddings are each token's own; who sees whom is the forest's. Keys come
without a mask from the model, since transformers makes none for an interface it does not know.
"""

import torch
from transformers import AttentionInterface

from services.trainer.packed.blocks import BlockAttention, BlockPlan
from services.trainer.packed.forest import Forest

ATTENTION_NAME = "gyre_packed"
KEYWORD = "gyre_packing"


class Packing:
    """A forest on its way through a model: what each window needs is made when the first layer asks for it."""

    def __init__(self, forest: Forest, device: torch.device) -> None:
        self.forest = forest
        self._device = device
        self._blocks: dict[int | None, BlockPlan] = {}
        self.asked: list[tuple[int, int | None]] = []
        """(layer, window) of each call of the attention."""

    def blocks(self, window: int | None) -> BlockPlan:
        if window not in self._blocks:
            self._blocks[window] = BlockPlan(self.forest, window, self._device)
        return self._blocks[window]


def packed_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, _mask: None,
    scaling: float | None = None, sliding_window: int | None = None, softcap: float | None = None,
    s_aux: torch.Tensor | None = None, gyre_packing: Packing | None = None, **_kwargs: object,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """query [1, H, T, D], key and value [1, K, T, D] → [1, T, H, D]. Raises NotImplementedError for what it cannot do exactly."""
    if gyre_packing is None or softcap is not None or s_aux is not None:
        raise NotImplementedError(
            f"{type(module).__name__}: no forest, or a soft cap or sinks, which are not implemented"
        )
    gyre_packing.asked.append((getattr(module, "layer_idx", -1), sliding_window))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = BlockAttention.apply(query[0], key[0], value[0], gyre_packing.blocks(sliding_window), scale)
    return out.transpose(0, 1)[None], None


AttentionInterface.register(ATTENTION_NAME, packed_attention)
