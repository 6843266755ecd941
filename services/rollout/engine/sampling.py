"""Sampling whose draws depend on (seed, output position) only, so that batching, timing and migration change nothing.

One uniform number a token, from a counter-based hash, is put through the inverse of the cumulative distribution in
float64. On a CPU a row's logits do not depend on the batch either (attention.py), so the whole draw does not; elsewhere two
batches round logits differently (about 1e-7), and a draw changes only where the number falls that near to a boundary between
two tokens.
"""

import numpy as np
import torch

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): every input bit changes each output bit with probability half."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One float64 in [0, 1 − 2⁻⁵²] for each (seed, position); both [R] uint64."""
    bits = _mix(_mix(seeds + _GOLDEN) + (positions + np.uint64(1)) * _GOLDEN)
    # 52 bits, not 53: the largest draw times a total mass then always rounds to less than that mass
    return (bits >> np.uint64(12)).astype(np.float64) * 2.0**-52


def sample(
    logits: torch.Tensor, temperatures: np.ndarray, top_ps: np.ndarray, seeds: np.ndarray, positions: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and their log-probabilities at the sampling distribution (see `Chunk`), both [R].

    logits [R, V]; temperatures, top_ps float [R]; seeds, positions uint64 [R].
    """
    logits = logits.float()
    greedy = temperatures == 0
    if (temperatures != 1).any():
        scale = torch.from_numpy(np.where(greedy, 1.0, temperatures).astype(np.float32)).to(logits.device)
        logits = logits / scale[:, None]
    logprobs = logits.log_softmax(-1)
    if (nucleus := (top_ps < 1) & ~greedy).any():
        limits = torch.from_numpy(np.where(nucleus, top_ps, np.inf)).to(logits.device)
        logprobs = _restrict_to_nucleus(logprobs, limits)
    if greedy.all():
        ids = logprobs.argmax(-1)
    else:
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        draws = torch.from_numpy(uniforms(seeds, positions)).to(logits.device)
        # right=True: the first token whose cumulative mass exceeds the draw, so never one of no mass
        ids = torch.searchsorted(cumulative, draws[:, None] * cumulative[:, -1:], right=True)[:, 0]
        ids = ids.clamp_(max=logits.shape[-1] - 1)  # reached only with NaN, which is told below
        if greedy.any():
            ids = torch.where(torch.from_numpy(greedy).to(ids.device), logprobs.argmax(-1), ids)
    chosen = logprobs.gather(-1, ids[:, None])[:, 0]
    if not torch.isfinite(chosen).all():
        raise FloatingPointError("the model's logits are not finite")
    return ids, chosen


def _restrict_to_nucleus(logprobs: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities renormalised over each row's likeliest tokens that reach its limit; −inf outside. [R, V], [R]."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    mass = ordered.double().exp()
    outside = mass.cumsum(-1) - mass >= limits[:, None]
    dropped = torch.zeros_like(outside).scatter_(-1, order, outside)
    return logprobs.masked_fill(dropped, float("-inf")).log_softmax(-1)
