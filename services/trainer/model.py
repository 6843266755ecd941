"""The policy as a trainer sees it: log-probabilities of target tokens, and its tensors by name.

Shape legend: B rows padded on the right to length T; N target tokens of them, row after row; D hidden width; V vocabulary.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from transformers import AutoModelForCausalLM

from gyre.errors import ConfigError

_LOGIT_SETTINGS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "output_multiplier_scale")
"""A model that has one of these does more to its logits than the output layer; then its own forward makes all of them."""


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


class Policy:
    """A causal language model in float32, in training mode without dropout."""

    def __init__(self, directory: Path, device: str = "cpu") -> None:
        """Raises ConfigError for a directory that cannot be loaded."""
        check_directory(directory)
        try:
            model = AutoModelForCausalLM.from_pretrained(
                directory, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
            )
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            raise ConfigError(f"model directory {directory} cannot be loaded: {error}") from error
        # Dropout would make the trainer's log-probabilities differ from the sampler's.
        self.model = model.eval().requires_grad_(True).to(device)
        self.device = torch.device(device)
        self.vocabulary: int = model.get_output_embeddings().weight.shape[0]
        self._plain_output = not any(getattr(model.config, name, None) for name in _LOGIT_SETTINGS)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Each once (tied ones are one), in a fixed order: the order of a flattened gradient."""
        return list(self.model.parameters())

    def target_logprobs(self, ids_BT: torch.Tensor, mask_BT: torch.Tensor, temperature_B: torch.Tensor) -> torch.Tensor:
        """[N] log-probability of each token where `mask_BT` (bool, never at index 0), at its row's temperature.

        Rows are padded on the right and attention is causal, so no target sees padding and no attention mask is needed. Logits are
        made only where one is asked for: with a vocabulary of any size they are most of the time and memory.
        """
        before_BT = mask_BT[:, 1:]
        if self._plain_output:
            hidden_BTD = self.model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
            logits_NV = self.model.get_output_embeddings()(hidden_BTD[:, :-1][before_BT])
        else:
            logits_NV = self.model(input_ids=ids_BT, use_cache=False).logits[:, :-1][before_BT]
        rows_N = before_BT.nonzero()[:, 0]
        logits_NV = logits_NV.float() / temperature_B[rows_N, None]
        chosen_N = logits_NV.gather(1, ids_BT[:, 1:][before_BT][:, None])[:, 0]
        return chosen_N - logits_NV.logsumexp(-1)

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
