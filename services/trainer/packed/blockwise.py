"""Attention of a forest block by block, in memory that grows with the tokens and not with their square.

Keys of a block are gathered again for the backward: torch's own would keep a copy for each block, T²/QUERIES_MAX in all.

Shapes: T tokens, H query heads, K key heads, G = H / K, D and E dimensions of keys and values.
"""

from typing import Any

import torch

from services.trainer.packed.blocks import BlockPlan, ExactKernel, Kernel, SdpaKernel


def attend(
    query_HTD: torch.Tensor, key_KTD: torch.Tensor, value_KTE: torch.Tensor, plan: BlockPlan, scale: float,
    softcap: float | None = None, sinks_H: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """[H, T, E]"""
    return _Attention.apply(query_HTD, key_KTD, value_KTE, sinks_H, plan, scale, softcap)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None,
        plan: BlockPlan, scale: float, softcap: float | None,
    ) -> torch.Tensor:  # fmt: skip
        query_GKTD = _grouped(query, len(key))
        # models hand over views of [T, K, D]; gathering from these would copy all of them for each block
        key, value = key.contiguous(), value.contiguous()
        kernel = _kernel(query, key, value, sinks, scale, softcap)
        out_GKTE = query.new_empty(*query_GKTD.shape[:3], value.shape[-1])
        lse_GKT = torch.empty(query_GKTD.shape[:3], device=query.device)
        for number, block in enumerate(plan.blocks):
            at = (..., slice(block.start, block.stop), slice(None))
            k, v = plan.gather(number, key), plan.gather(number, value)
            out_GKTE[at], lse_GKT[at[:2]] = kernel.forward(query_GKTD[at], k, v, plan, number)
        ctx.save_for_backward(query, key, value, out_GKTE, lse_GKT, *([] if sinks is None else [sinks]))
        ctx.plan, ctx.scale, ctx.softcap = plan, scale, softcap
        return _ungrouped(out_GKTE)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        query, key, value, out_GKTE, lse_GKT, *rest = ctx.saved_tensors
        sinks = rest[0] if rest else None
        plan, kernel = ctx.plan, _kernel(query, key, value, sinks, ctx.scale, ctx.softcap)
        query_GKTD, grad_GKTE = _grouped(query, len(key)), _grouped(gradients[0].contiguous(), len(key))
        dquery_GKTD, dkey, dvalue = torch.empty_like(query_GKTD), torch.zeros_like(key), torch.zeros_like(value)
        for number, block in enumerate(plan.blocks):
            at = (..., slice(block.start, block.stop), slice(None))
            k, v = plan.gather(number, key), plan.gather(number, value)
            dquery_GKTD[at], dk, dv = kernel.backward(
                grad_GKTE[at], query_GKTD[at], k, v, out_GKTE[at], lse_GKT[at[:2]], plan, number
            )
            plan.scatter(number, dkey, dk)
            plan.scatter(number, dvalue, dv)
        dsinks = None if sinks is None else kernel.dsinks_GK.T.flatten().to(sinks.dtype)
        return _ungrouped(dquery_GKTD), dkey, dvalue, dsinks, None, None, None


def _kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None, scale: float,
    softcap: float | None,
) -> Kernel:  # fmt: skip
    if softcap is None and sinks is None and key.shape[-1] == value.shape[-1] and query.device.type == "cpu":
        return SdpaKernel(scale)
    return ExactKernel(scale, softcap, None if sinks is None else sinks.unflatten(0, (len(key), -1)).T)


def _grouped(x_HTD: torch.Tensor, key_heads: int) -> torch.Tensor:
    """[G, K, T, D]"""
    return x_HTD.unflatten(0, (key_heads, -1)).transpose(0, 1)


def _ungrouped(x_GKTD: torch.Tensor) -> torch.Tensor:
    return x_GKTD.transpose(0, 1).flatten(0, 1)
