"""Which models may be trained packed: attention over what a token sees, positions from `position_ids`, and nothing else between tokens.

What cannot be told from a configuration is tried: a small forest, packed and path by path, must give the same hidden states. So a
model that mixes tokens in another way (linear attention, a state space, a convolution, absolute positions by place) is found out whatever it is
called. Only what shows itself at a distance alone, windows and position scalings, is read from the configuration.
"""

import numpy as np
import torch
from transformers import PreTrainedModel

from services.trainer.packed.attention import ATTENTION_NAME, KEYWORD, Packing
from services.trainer.packed.forest import ROOT, Forest, make_forest

LAYER_TYPES = {"full_attention", "sliding_attention"}
ROPE_TYPES_BY_LENGTH = {"dynamic", "longrope"}
"""Rotary embeddings that change with the longest position in the forward, which is another one when paths are computed together."""
ERROR_MAX = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Relative difference of hidden states between packed and path by path; noise is a thousandth of it."""
ERROR_MAX_OTHER = 0.05
"""Of half-precision models."""


def why_not_packed(model: PreTrainedModel) -> str:
    """Reason why `model` is trained path by path; empty when it may be packed, and its attention is then ours."""
    plain = model.config._attn_implementation
    reason = _by_configuration(model)
    if not reason:
        try:
            reason = _by_trial(model, plain)
        except (NotImplementedError, TypeError, ValueError, RuntimeError, KeyError, AttributeError) as error:
            reason = f"packed attention cannot run in it: {error}"
    model.set_attn_implementation(plain if reason else ATTENTION_NAME)
    return reason


def _by_configuration(model: PreTrainedModel) -> str:
    config = model.config.get_text_config()
    if other := set(getattr(config, "layer_types", None) or ()) - LAYER_TYPES:
        return f"it has layers of type {', '.join(sorted(other))}"
    if by_length := _rope_types(getattr(config, "rope_parameters", None)) & ROPE_TYPES_BY_LENGTH:
        return f"its rotary embedding ({', '.join(sorted(by_length))}) depends on the length of the whole row"
    return ""


def _rope_types(parameters: object) -> set[str]:
    """Of all layers: the settings may be one set, or one for each layer type."""
    if not isinstance(parameters, dict):
        return set()
    own = parameters.get("rope_type")
    return ({own} if own else set()).union(*(_rope_types(value) for value in parameters.values()))


def _by_trial(model: PreTrainedModel, plain: str) -> str:
    forest = _trial_forest(model.get_input_embeddings().weight.shape[0])
    ids_T = torch.from_numpy(forest.tokens_T).to(model.device)
    with torch.no_grad():
        expected = [
            model.base_model(input_ids=ids_T[path][None], use_cache=False).last_hidden_state[0]
            for path in _paths(forest)
        ]
        model.set_attn_implementation(ATTENTION_NAME)
        if model.config._attn_implementation != ATTENTION_NAME:
            return "it does not use transformers' attention interface"
        packing = Packing(forest, model.device)
        positions = torch.from_numpy(forest.positions_T).to(model.device)[None]
        told = {"position_ids": positions, "use_cache": False, KEYWORD: packing}
        found_TD = model.base_model(input_ids=ids_T[None], **told).last_hidden_state[0]
    if reason := _by_windows(model, packing):
        return reason
    found = torch.cat([found_TD[path] for path in _paths(forest)]).double()
    wanted = torch.cat(expected).double()
    error = ((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max().item()
    if not error <= ERROR_MAX.get(model.dtype, ERROR_MAX_OTHER):
        return f"tokens of a trial tree differ by {error:.1g} from the same paths one by one"
    return ""


def _by_windows(model: PreTrainedModel, packing: Packing) -> str:
    """Whether each layer attended once, with the window that the configuration says."""
    config = model.config.get_text_config()
    if len(packing.asked) != config.num_hidden_layers:
        return f"{len(packing.asked)} of its {config.num_hidden_layers} layers attend through transformers' interface"
    kinds, named = getattr(config, "layer_types", None), getattr(config, "sliding_window", None)
    for layer, window in packing.asked:
        kind = kinds[layer] if kinds else "sliding_attention"
        expected = named if kind == "sliding_attention" and getattr(config, "use_sliding_window", True) else None
        if window != expected:
            return f"layer {layer} is {kind} and attends with window {window} instead of {expected}"
    return ""


def _trial_forest(vocabulary: int) -> Forest:
    """Two trees: 9 ─┬─ 5 ─┬─ 3, 4   and 6 tokens."""
    lengths, parents = np.array([9, 5, 3, 4, 7, 6]), np.array([ROOT, 0, 1, 1, 0, ROOT])
    tokens = np.arange(1, lengths.sum() + 1) * 7919 % vocabulary
    return make_forest(tokens, lengths, parents, np.empty(0, np.int64), np.empty(0, np.float32))


def _paths(forest: Forest) -> list[np.ndarray]:
    """Tokens of the path to each leaf."""
    runs = [np.arange(start, start + length) for start, length in zip(forest.starts_R, forest.lengths_R, strict=True)]
    leaves = sorted(set(range(len(runs))) - set(forest.parents_R.tolist()))
    return [np.concatenate([runs[run] for run in forest.path(leaf)]) for leaf in leaves]
