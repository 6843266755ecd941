"""Attention of a forest on a GPU: FlexAttention with a block mask made from the runs, without ever looking at T × T pairs.

A block of keys is *full* for a block of queries where every query sees every key: then no mask is evaluated in it. What queries of [start, stop)
see before `start` lies on the path of token `start` (plan.py), so each row of the mask follows from that path's stretches of tokens.
"""

from functools import cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from services.trainer.packed.forest import Forest

BLOCK_TOKENS = 128
"""FlexAttention's own block."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: BlockMask, scale: float, softcap: float | None
) -> torch.Tensor:
    """[1, H, T, D] → [1, H, T, D]"""

    def cap(score: torch.Tensor, *_index: torch.Tensor) -> torch.Tensor:
        return softcap * torch.tanh(score / softcap)

    groups = query.shape[1] // key.shape[1]
    if groups & (groups - 1):  # its kernels share keys among 1, 2, 4 … query heads
        key, value, groups = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), 1
    kernel = _compiled() if query.device.type == "cuda" else flex_attention
    score_mod = None if softcap is None else cap
    return kernel(query, key, value, score_mod=score_mod, block_mask=mask, scale=scale, enable_gqa=groups > 1)


@cache
def _compiled() -> object:
    return torch.compile(flex_attention, dynamic=True)


def block_mask(forest: Forest, window: int | None, device: torch.device) -> BlockMask:
    """Who sees whom, as FlexAttention wants it."""
    ends_T = torch.from_numpy(forest.ends_T).to(device)
    positions_T = torch.from_numpy(forest.positions_T).to(device)

    def sees(_batch: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        seen = (key <= query) & (query < ends_T[key])
        return seen if window is None else seen & (positions_T[query] - positions_T[key] < window)

    partly, full = block_kinds(forest, window)
    tables = [torch.from_numpy(table).to(device)[None, None] for kind in (partly, full) for table in _table(kind)]
    return BlockMask.from_kv_blocks(
        tables[0], tables[1], tables[2], tables[3], BLOCK_SIZE=BLOCK_TOKENS, mask_mod=sees,
        seq_lengths=(forest.tokens, forest.tokens),
    )  # fmt: skip


def block_kinds(forest: Forest, window: int | None = None) -> tuple[npt.NDArray, npt.NDArray]:
    """bool[blocks of queries, blocks of keys], twice: where some pairs are seen, and where all are."""
    tokens = forest.tokens
    blocks = -(-tokens // BLOCK_TOKENS)
    edges = np.minimum(np.arange(blocks + 1) * BLOCK_TOKENS, tokens)
    partly, full = np.zeros((2, blocks, blocks), bool)
    positions_T, ends_T = forest.positions_T, forest.ends_T
    lowest_end_B = np.minimum.reduceat(ends_T, edges[:-1])
    low_B, high_B = (f.reduceat(positions_T, edges[:-1]) for f in (np.minimum, np.maximum))
    for number, (start, stop) in enumerate(pairwise(edges.tolist())):
        partly[number, _blocks_on_path(forest, start)] = True
        partly[number, number] = True
        # keys before the block that are seen to its end are seen by all of it
        full[number, :number] = lowest_end_B[:number] >= stop
    if window is not None:
        partly &= low_B[:, None] - high_B[None] < window
        full &= high_B[:, None] - low_B[None] < window
    return partly & ~full, full & partly


def _blocks_on_path(forest: Forest, token: int) -> npt.NDArray:
    """int64, blocks of keys that hold a token that `token` sees."""
    run = int(np.searchsorted(forest.starts_R, token, side="right")) - 1
    found = []
    for ancestor in forest.path(run):
        first = int(forest.starts_R[ancestor])
        last = token if ancestor == run else first + int(forest.lengths_R[ancestor]) - 1
        found.append(np.arange(first // BLOCK_TOKENS, last // BLOCK_TOKENS + 1))
    return np.unique(np.concatenate(found))


def _table(kind: npt.NDArray) -> tuple[npt.NDArray, npt.NDArray]:
    """bool[Q, K] → (how many in each row, their indices first), int32."""
    order = np.argsort(~kind, axis=1, kind="stable")
    return kind.sum(1).astype(np.int32), order.astype(np.int32)
