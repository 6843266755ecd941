"""One number for a whole set of weights, the same on both sides of a transfer."""

import hashlib
from collections.abc import Mapping

import torch


def digest_of(weights: Mapping[str, torch.Tensor]) -> str:
    """sha256 over names, types, shapes and values, in the order of names.

    −0 counts as +0: weights that are read back through a kernel that adds up products with zeros have lost that sign.
    """
    total = hashlib.sha256()
    for name in sorted(weights):
        tensor = (weights[name].detach() + 0).cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return total.hexdigest()
