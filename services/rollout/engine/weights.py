"""New weights: read, check completely, stage. No live tensor is written before everything has passed."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch

from services.rollout.engine.requests import WeightsRefused

WeightSource = str | Path | Mapping[str, torch.Tensor]
"""A safetensors file, a folder of them, or tensors by their names in the model's state dict."""


def read_weights(source: WeightSource, checksum: str | None) -> Mapping[str, torch.Tensor]:
    """The tensors of `source`; what is hashed is what is parsed, read once, so a file replaced meanwhile cannot slip in."""
    if isinstance(source, Mapping):
        if checksum is not None:
            raise WeightsRefused("a checksum is that of one file; tensors have none")
        return source
    path = Path(source)
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or (checksum is not None and len(files) != 1):
        raise WeightsRefused(f"{path}: {len(files)} safetensors files")
    state: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            data = file.read_bytes()
            if checksum is not None and (found := hashlib.sha256(data).hexdigest()) != checksum:
                raise WeightsRefused(f"{file}: sha256 {found}, published {checksum}")
            state.update(safetensors.torch.load(data))
        except (OSError, safetensors.SafetensorError) as error:
            raise WeightsRefused(f"{file}: {error}") from error
    return state


class WeightTargets:
    """The model's parameters and persistent buffers; tied ones are one target of several names."""

    def __init__(self, model: torch.nn.Module):
        self._targets: list[tuple[torch.Tensor, set[str], torch.Size, torch.dtype, torch.device]] = []
        by_id: dict[int, set[str]] = {}
        live: dict[int, torch.Tensor] = {}
        for name, tensor in model.state_dict(keep_vars=True).items():
            by_id.setdefault(id(tensor), set()).add(name)
            live[id(tensor)] = tensor
        for key, names in by_id.items():
            t = live[key]
            self._targets.append((t, names, t.shape, t.dtype, t.device))

    def stage(self, source: WeightSource, checksum: str | None) -> list[torch.Tensor]:
        """Checked copies on the targets' devices and in their types, in the targets' order. Raises WeightsRefused."""
        state = read_weights(source, checksum)
        known = set().union(*(names for _, names, *_ in self._targets))
        if unknown := sorted(set(state) - known):
            raise WeightsRefused(f"unknown names: {unknown[:5]} ({len(unknown)})")
        staged = []
        for _, names, shape, dtype, device in self._targets:
            given = [state[name] for name in sorted(names) if name in state]
            if not given:
                raise WeightsRefused(f"missing: {' = '.join(sorted(names))}")
            if any(tensor.shape != shape for tensor in given):
                raise WeightsRefused(f"{sorted(names)}: shape {tuple(given[0].shape)}, expected {tuple(shape)}")
            if any(not torch.equal(given[0], tensor) for tensor in given[1:]):
                raise WeightsRefused(f"tied tensors differ: {sorted(names)}")
            if not torch.isfinite(given[0]).all():
                raise WeightsRefused(f"not finite: {sorted(names)}")
            # a copy, also where nothing is converted: the giver may go on changing its tensors
            staged.append(given[0].detach().to(device=device, dtype=dtype, copy=True))
        return staged

    def spelled_out(self, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What has passed `stage`, under every name there is: tied tensors under each of theirs."""
        named = {}
        for _, names, *_ in self._targets:
            given = next(state[name] for name in sorted(names) if name in state)
            named |= dict.fromkeys(names, given)
        return named

    def copy_into_live(self, staged: list[torch.Tensor]) -> None:
        for (live, *_), new in zip(self._targets, staged, strict=True):
            live.data.copy_(new)

    def replace(self, staged: list[torch.Tensor] | None) -> None:
        """Give the model these tensors as its storage; None frees the storage."""
        for i, (live, _, _, dtype, device) in enumerate(self._targets):
            live.data = torch.empty(0, dtype=dtype, device=device) if staged is None else staged[i]
