"""The policy as a trainer sees it: log-probabilities of target tokens, and its tensors by name.

Shape legend: T tokens of a forest; N target tokens of them; D hidden width.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from torch.utils.checkpoint import checkpoint
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedModel

from gyre.errors import ConfigError
from services.trainer.packed.attention import KEYWORD, Packing
from services.trainer.packed.flat import along_paths
from services.trainer.packed.forest import Forest
from services.trainer.packed.support import why_not_packed

log = logging.getLogger(__name__)

PROBE_TOKENS = 8

LOGITS_AT_ONCE = 2**22
"""Logits of one piece of targets: 16 MiB of float32, some of which stay in a processor's cache from one pass over them to the next."""
LOGITS_MAX = 2**26
"""Logits that are kept for the backward: 256 MiB of float32."""


def check_directory(directory: Path) -> None:
    """Raises ConfigError, naming what is missing, unless it is a Hugging Face directory with configuration, weights and tokenizer."""
    if not directory.is_dir():
        raise ConfigError(f"model directory {directory} does not exist")
    needs = {
        "a configuration (config.json)": ["config.json"],
        "weights (*.safetensors)": ["*.safetensors"],
        "a tokenizer (tokenizer.json or tokenizer_config.json)": ["tokenizer.json", "tokenizer_config.json"],
    }
    missing = [what for what, patterns in needs.items() if not any(any(directory.glob(p)) for p in patterns)]
    if missing:
        raise ConfigError(f"model directory {directory} has no {' and no '.join(missing)}")
    try:
        json.loads((directory / "config.json").read_text())
    except ValueError as error:
        raise ConfigError(f"{directory / 'config.json'} is not JSON: {error}") from error


def check_device(device: str) -> None:
    """Raises ConfigError at the start, for it is used only when the cell first trains."""
    try:
        torch.empty(1, device=device).add_(1)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise ConfigError(f"trainer.device `{device}` cannot be used: {str(error).splitlines()[0]}") from error


def _plain_attention(directory: Path) -> str:
    """For what is computed without packing. transformers' SDPA leaves out soft caps without a word."""
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    is_capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return "sdpa" if getattr(model_class, "_supports_sdpa", True) and not is_capped else "eager"


def _chosen_logprobs(
    head: torch.nn.Module, states_ND: torch.Tensor, chosen_N: torch.Tensor, temperatures_N: torch.Tensor | None
) -> torch.Tensor:
    """[N], at temperature 1 where none are given. Above LOGITS_MAX logits in all they are made again in the backward instead of kept."""

    def some(states: torch.Tensor, chosen: torch.Tensor, temperatures: torch.Tensor | None) -> torch.Tensor:
        logits = head(states).float()
        if temperatures is not None:
            logits = logits / temperatures[:, None]
        return -torch.nn.functional.cross_entropy(logits, chosen, reduction="none")

    width = getattr(head, "out_features", states_ND.shape[-1])
    size = max(1, LOGITS_AT_ONCE // width)
    inputs = [
        [None if x is None else x[at : at + size] for x in (states_ND, chosen_N, temperatures_N)]
        for at in range(0, len(chosen_N), size)
    ]
    if len(chosen_N) * width <= LOGITS_MAX:
        return torch.cat([some(*piece) for piece in inputs])
    return torch.cat([checkpoint(some, *piece, use_reentrant=False) for piece in inputs])


@torch.no_grad()
def _is_output_plain(model: PreTrainedModel, vocabulary: int) -> bool:
    """Whether logits are what the output layer makes of the last hidden states, and nothing more: seen on a few tokens, bit for bit.

    Caps and multipliers have another name, and another place in the configuration, in each family of models; one that is overlooked gives
    log-probabilities that are wrong without a word.
    """
    seen: dict[str, torch.Tensor] = {}

    def see_states(_module: torch.nn.Module, _inputs: tuple, output: Any) -> None:
        seen["states"] = getattr(output, "last_hidden_state", None)

    def see_head(_module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        seen["given"], seen["made"] = inputs[0], output

    hooks = [
        model.base_model.register_forward_hook(see_states),
        model.get_output_embeddings().register_forward_hook(see_head),
    ]
    try:
        ids_1T = torch.arange(1, PROBE_TOKENS + 1, device=model.device)[None] % vocabulary
        logits = model(input_ids=ids_1T, use_cache=False).logits
    finally:
        for hook in hooks:
            hook.remove()
    pairs = [(seen.get("states"), seen.get("given")), (logits, seen.get("made"))]
    return all(
        one is not None and other is not None and torch.equal(one.float(), other.float()) for one, other in pairs
    )


def _loaded(directory: Path, dtype: torch.dtype) -> PreTrainedModel:
    """Raises ConfigError. transformers draws weights that it does not find at random, with a warning."""
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            directory, dtype=dtype, attn_implementation=_plain_attention(directory), local_files_only=True,
            output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        raise ConfigError(f"model directory {directory} cannot be loaded: {error}") from error
    if missing := sorted(found["missing_keys"]):
        raise ConfigError(
            f"model directory {directory} lacks weights that its config.json calls for: {', '.join(missing[:5])}"
        )
    broken = [name for name, tensor in model.named_parameters() if not tensor.isfinite().all()]
    if broken:
        raise ConfigError(f"model directory {directory} holds weights that are not finite: {', '.join(broken[:5])}")
    return model


class Policy:
    """A causal language model in float32, in training mode without dropout."""

    def __init__(self, directory: Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        """Raises ConfigError for a directory that cannot be loaded."""
        check_directory(directory)
        model = _loaded(directory, dtype)
        # Dropout would make the trainer's log-probabilities differ from the sampler's.
        self.model = model.eval().requires_grad_(True).to(device)
        self.device = torch.device(device)
        self.vocabulary: int = model.get_output_embeddings().weight.shape[0]
        self._plain_output = _is_output_plain(self.model, self.vocabulary)
        """Else the model's own forward makes all logits."""
        self.not_packed = why_not_packed(self.model)
        """Why trees are computed path by path; empty when they are packed."""
        if self.not_packed:
            log.warning("trees are trained path by path: %s", self.not_packed)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Each once (tied ones are one), in a fixed order: the order of a flattened gradient."""
        return list(self.model.parameters())

    def target_logprobs(self, forest: Forest) -> torch.Tensor:
        """[N] log-probability of each of the forest's targets in its own context, at its own temperature (B8)."""
        return along_paths(forest, self._logprobs) if self.not_packed else self._logprobs(forest)

    def _logprobs(self, forest: Forest) -> torch.Tensor:
        """Logits are made only where one is asked for: with a vocabulary of any size they are most of the time and memory."""
        ids_1T, before_N = self._tensor(forest.tokens_T)[None], self._tensor(forest.before_N)
        told = {"use_cache": False}
        if not self.not_packed:
            positions_1T = self._tensor(forest.positions_T)[None]
            told |= {"position_ids": positions_1T, KEYWORD: Packing(forest, self.device)}
        if self._plain_output:
            states_ND = self.model.base_model(input_ids=ids_1T, **told).last_hidden_state.squeeze(0)[before_N]
            head = self.model.get_output_embeddings()
        else:
            states_ND, head = self.model(input_ids=ids_1T, **told).logits.squeeze(0)[before_N], torch.nn.Identity()
        chosen_N = ids_1T[0, self._tensor(forest.targets_N)]
        is_neutral = (forest.temperatures_N == 1).all()
        temperatures_N = None if is_neutral else self._tensor(forest.temperatures_N)
        return _chosen_logprobs(head, states_ND, chosen_N, temperatures_N)

    def _tensor(self, values: npt.NDArray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.device)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and persistent buffers by name, on the CPU; of tied ones the first name only."""
        seen: dict[int, str] = {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            seen.setdefault(id(tensor), name)
        state = self.model.state_dict(keep_vars=True)
        return {name: state[name].detach().cpu().contiguous() for name in seen.values()}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy `tensors` (as `tensors()` gave them) into the model. Raises ConfigError when names or shapes do not fit."""
        state = self.model.state_dict(keep_vars=True)
        wanted = {id(tensor): (name, tensor) for name, tensor in reversed(state.items()) if name in tensors}
        missing = [name for name, tensor in state.items() if id(tensor) not in wanted]
        wrong = [name for name, tensor in wanted.values() if tensors[name].shape != tensor.shape]
        unknown = sorted(set(tensors) - set(state))
        if missing or wrong or unknown:
            raise ConfigError(
                f"weights do not fit the model: missing {missing}, wrong shape {wrong}, unknown {unknown}"
            )
        with torch.no_grad():
            for name, tensor in wanted.values():
                tensor.copy_(tensors[name])

    def move(self, device: str) -> None:
        self.model.to(device)
        self.device = torch.device(device)
