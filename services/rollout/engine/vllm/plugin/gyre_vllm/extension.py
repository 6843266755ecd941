"""What vLLM's worker can do more when Gyre runs it."""

import torch
from torch.nn.functional import linear
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.platforms import current_platform
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from .digest import digest_of

ROWS = 256
"""Rows of the identity that go through a kernel at once."""


class Extension:
    """Mixed into the worker."""

    def gyre_digest(self) -> dict[str, str]:
        """The digest of the weights that serve, by the checkpoint's names; to be compared with that of the published file."""
        return {"digest": digest_of(live_weights(self.model_runner.get_model()))}


def live_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What the next forward pass computes with, split up as in the checkpoint. For one device (no tensor parallelism)."""
    fused = getattr(model, "packed_modules_mapping", {})
    weights: dict[str, torch.Tensor] = {}
    for prefix, layer in model.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            tensor = _in_use(layer, parameter) if name == "weight" else parameter
            head, _, last = prefix.rpartition(".")
            if last in fused:
                parts = tensor.split(list(layer.output_sizes))
                weights |= {f"{head}.{part}.{name}": t for part, t in zip(fused[last], parts, strict=True)}
            else:
                weights[f"{prefix}.{name}"] = tensor
    return weights


def _in_use(layer: torch.nn.Module, parameter: torch.Tensor) -> torch.Tensor:
    """On a CPU linear layers compute with a packed copy, and vLLM has thrown the parameter away: the copy is read by what it
    does to the identity, which is exact."""
    kernel = getattr(layer, "cpu_linear", linear)
    is_head = isinstance(layer, ParallelLMHead)
    if isinstance(layer, VocabParallelEmbedding):
        parameter = parameter[: layer.org_vocab_size]
    if kernel is linear or (isinstance(layer, VocabParallelEmbedding) and not is_head):
        return parameter
    inputs = layer.embedding_dim if is_head else layer.input_size
    rows = torch.eye(inputs, dtype=parameter.dtype).split(ROWS)
    read = torch.cat([kernel(part, parameter, None) for part in rows]).T
    return read[: layer.org_vocab_size] if is_head else read


def _keep_generators(bookkeeping):
    """vLLM 0.32 takes back the draw of a request whose prompt is computed in parts by the generator's offset, which generators of a
    CPU do not have: the worker would die of it. Without that, such a request's seeded draws begin later in the same sequence."""

    def bookkeeping_without_offsets(runner, *arguments, **named):
        batch = runner.input_batch
        generators, batch.generators = batch.generators, {}
        try:
            return bookkeeping(runner, *arguments, **named)
        finally:
            batch.generators = generators

    return bookkeeping_without_offsets


if current_platform.is_cpu():
    GPUModelRunner._bookkeeping_sync = _keep_generators(GPUModelRunner._bookkeeping_sync)
