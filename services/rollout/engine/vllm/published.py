"""A published policy version on its way to vLLM: checked like the embedded engine's, before anybody is paused for it."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gyre.errors import ConfigError
from services.rollout.engine.requests import WeightsRefused
from services.rollout.engine.vllm.plugin.gyre_vllm.digest import digest_of
from services.rollout.engine.weights import WeightTargets, read_weights


@dataclass(frozen=True, slots=True)
class WeightFile:
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Published:
    version: int
    files: tuple[WeightFile, ...]
    digest: str
    """Of all tensors by name, in the type that serves: what the engine must show after the update."""

    def listed(self) -> list[dict]:
        return [asdict(file) for file in self.files]


class Shape:
    """Names, shapes and ties of the model's tensors, without memory for any."""

    def __init__(self, model_dir: Path, dtype: str) -> None:
        config = AutoConfig.from_pretrained(model_dir)
        with torch.device("meta"):
            self._targets = WeightTargets(AutoModelForCausalLM.from_config(config))
        self._dtype = getattr(torch, dtype)
        self.vocab_size: int = config.vocab_size
        self.positions: int | None = getattr(config, "max_position_embeddings", None)

    def check_context(self, context_max: int) -> None:
        if self.positions is not None and context_max > self.positions:
            raise ConfigError(f"context_max {context_max}, but the model has {self.positions} positions")

    def publish(self, source: Path, version: int, checksum: str | None) -> Published:
        """Read and check a safetensors file, or a folder of them. Raises WeightsRefused."""
        state = read_weights(source, checksum)
        self._targets.stage(state, None)
        served = {name: tensor.to(self._dtype) for name, tensor in self._targets.spelled_out(state).items()}
        paths = sorted(source.glob("*.safetensors")) if source.is_dir() else [source]
        try:
            files = tuple(_file(path, checksum) for path in paths)
        except OSError as error:
            raise WeightsRefused(f"{source}: {error}") from error
        return Published(version, files, digest_of(served))


def _file(path: Path, checksum: str | None) -> WeightFile:
    with path.open("rb") as file:
        sha256 = checksum or hashlib.file_digest(file, "sha256").hexdigest()
    return WeightFile(str(path.resolve()), sha256, path.stat().st_size)
