"""Attention of a forest block by block, in memory that grows with the tokens and not with their square.

Keys of a block are laid side by side again for the backward: torch's own would keep a copy for each block, T²/QUERIES_MAX in all. The G query heads
of a key head are rows of one block, so its keys are read, and their gradients made, once for all of them.

Shapes: T tokens, H query heads, K key heads, G = H / K, D and E dimensions of keys and values; Q queries of a block, R = Q·G its rows.
"""

from typing import Any

import torch

from services.trainer.packed.blocks import BlockPlan, ExactKernel, Kernel, SdpaKernel
from services.trainer.packed.trail import GradientTrail, Trail


def attend(
    query_HTD: torch.Tensor, key_KTD: torch.Tensor, value_KTE: torch.Tensor, plan: BlockPlan, scale: float,
    softcap: float | None = None, sinks_H: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """[H, T, E], in memory [T, H, E]: what models make of it next."""
    return _Attention.apply(query_HTD, key_KTD, value_KTE, sinks_H, plan, scale, softcap)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None,
        plan: BlockPlan, scale: float, softcap: float | None,
    ) -> torch.Tensor:  # fmt: skip
        kernel = _kernel(query, key, value, sinks, scale, softcap)
        out = value.new_empty(query.shape[1], len(query), value.shape[-1]).transpose(0, 1)
        queries, into = _by_key(query, len(key)), _by_key(out, len(key))
        keys, values = (Trail(x.transpose(0, 1), plan.places) for x in (key, value))
        sums = []
        for number, block in enumerate(plan.blocks):
            k, v = (trail.move(plan.moves[number], block.keys) for trail in (keys, values))
            done, lse_KR = kernel.forward(_rows(queries, block.start, block.stop), k, v, plan, number)
            into[:, block.start : block.stop] = done.unflatten(1, (-1, into.shape[2]))
            sums.append(lse_KR)
        ctx.save_for_backward(query, key, value, out, *sums, *([] if sinks is None else [sinks]))
        ctx.plan, ctx.scale, ctx.softcap = plan, scale, softcap
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        plan = ctx.plan
        query, key, value, out, *rest = ctx.saved_tensors
        sums, sinks = rest[: len(plan.blocks)], (rest[len(plan.blocks) :] or [None])[0]
        kernel = _kernel(query, key, value, sinks, ctx.scale, ctx.softcap)
        dquery = query.new_empty(query.shape[1], len(query), query.shape[-1]).transpose(0, 1)
        queries, outs, grads, into = (_by_key(x, len(key)) for x in (query, out, gradients[0], dquery))
        keys, values = (Trail(x.transpose(0, 1), plan.places) for x in (key, value))
        dkeys, dvalues = (GradientTrail(x.transpose(0, 1), plan.places) for x in (key, value))
        for number, block in enumerate(plan.blocks):
            moves = plan.moves[number]
            k, v = (trail.move(moves, block.keys) for trail in (keys, values))
            grad_KRE, query_KRD, out_KRE = (_rows(x, block.start, block.stop) for x in (grads, queries, outs))
            dq, dk, dv = kernel.backward(grad_KRE, query_KRD, k, v, out_KRE, sums[number], plan, number)
            into[:, block.start : block.stop] = dq.unflatten(1, (-1, into.shape[2]))
            dkeys.add(moves, dk)
            dvalues.add(moves, dv)
        dkey, dvalue = (trail.all(plan.last_leave).to(key.dtype).transpose(0, 1) for trail in (dkeys, dvalues))
        dsinks = None if sinks is None else kernel.dsinks_KG.flatten().to(sinks.dtype)
        return dquery, dkey, dvalue, dsinks, None, None, None


def _kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None, scale: float,
    softcap: float | None,
) -> Kernel:  # fmt: skip
    groups = len(query) // len(key)
    if softcap is None and sinks is None and key.shape[-1] == value.shape[-1] and query.device.type == "cpu":
        return SdpaKernel(scale, groups)
    return ExactKernel(scale, groups, softcap, None if sinks is None else sinks.unflatten(0, (-1, groups)))


def _by_key(x_HTD: torch.Tensor, key_heads: int) -> torch.Tensor:
    """[K, T, G, D], a view."""
    return x_HTD.unflatten(0, (key_heads, -1)).transpose(1, 2)


def _rows(x_KTGD: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """[K, R, D], those of the queries [start, stop), a query's heads side by side."""
    return x_KTGD[:, start:stop].flatten(1, 2)
