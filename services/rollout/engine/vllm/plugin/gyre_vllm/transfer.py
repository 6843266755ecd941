"""vLLM's weight-transfer interface over Gyre's published files."""

from dataclasses import dataclass, field

import torch
from vllm.distributed.weight_transfer import WeightTransferEngine
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

from .receiving import read_files, receive_files


@dataclass
class InitInfo(WeightTransferInitInfo):
    """Nothing is agreed beforehand: each update says all about itself."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    files: list[dict] = field(default_factory=list)
    """path, sha256, bytes of each safetensors file, by the names of the checkpoint."""
    way: str = "file"
    """`file`: read here; `gloo`: sent by the cell."""
    store: str = ""
    """File in which the gloo group meets."""
    timeout_s: float = 60.0


class Transfer(WeightTransferEngine[InitInfo, UpdateInfo]):
    """All bytes are here and checked before the first live weight changes; then layer by layer, through vLLM's own loaders."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        pass

    def start_weight_update(self) -> None:
        pass

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if update_info.way == "gloo":
            weights = receive_files(update_info.files, update_info.store, update_info.timeout_s)
        else:
            weights = read_files(update_info.files)
        begin_anew(self.model)
        initialize_layerwise_reload(self.model)
        self.load(weights)

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        """Into the model, whose layers are taken apart for it: an error from here on leaves a model that must not serve."""
        self.model.load_weights(weights.items())

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        pack_tied_heads(self.model)

    def shutdown(self) -> None:
        pass


def begin_anew(model: torch.nn.Module) -> None:
    """An update that failed in the middle has left layers open, with some of its weights buffered: those must not count."""
    for layer in model.modules():
        info = get_layerwise_info(layer)
        if info.can_load():
            info.loaded_weights.clear()
            info.load_numel = 0


def pack_tied_heads(model: torch.nn.Module) -> None:
    """On a CPU a head holds a packed copy of its weights. One that is tied to the embedding is no layer of the checkpoint, so
    that vLLM's reload leaves it with the copy of the weights before."""
    for layer in model.modules():
        if isinstance(layer, ParallelLMHead) and hasattr(layer, "cpu_linear"):
            layer.quant_method.process_weights_after_loading(layer)
