"""A forest path by path, each token as often as paths hold it: for models that may not be packed, and to compare with."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from services.trainer.packed.forest import ROOT, Forest


def paths_of(forest: Forest) -> list[tuple[npt.NDArray, npt.NDArray]]:
    """For each path to a leaf (tokens of the path, places in 0 … N−1 of the targets that no earlier path holds), int64; none without a target."""
    inner = set(forest.parents_R.tolist())
    is_open_T = np.zeros(forest.tokens, bool)
    is_open_T[forest.targets_N] = True
    found = []
    for leaf in range(len(forest.lengths_R)):
        if leaf in inner:
            continue
        spans = [(int(forest.starts_R[run]), int(forest.lengths_R[run])) for run in forest.path(leaf)]
        path = np.concatenate([np.arange(start, start + length) for start, length in spans])
        mine = path[is_open_T[path]]
        is_open_T[path] = False
        if len(mine):
            found.append((path, np.searchsorted(forest.targets_N, mine)))
    return found


def along_paths(forest: Forest, logprobs_of: Callable[[Forest], torch.Tensor]) -> torch.Tensor:
    """[N], `logprobs_of` of each path as a forest of one run."""
    parts, places = [], []
    for path, place in paths_of(forest):
        targets = np.searchsorted(path, forest.targets_N[place])
        whole = (np.array([0]), np.array([len(path)]), np.array([ROOT]), np.array([0]), np.array([len(path)]))
        parts.append(logprobs_of(Forest(forest.tokens_T[path], *whole, targets, forest.temperatures_N[place])))
        places.append(place)
    order = np.argsort(np.concatenate(places))
    return torch.cat(parts)[torch.from_numpy(order).to(parts[0].device)]
