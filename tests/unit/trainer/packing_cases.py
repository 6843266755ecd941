"""Random trees as rows, tiny models of many families, and the same rows path by path to compare with."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from gyre.records import MicroStep, Row, array, pack
from services.trainer.model import Policy
from services.trainer.packed.forest import forest_of

VOCABULARY = 61

SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "pad_token_id": None, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1}
PACKED = {
    "qwen3": {"tie_word_embeddings": True},
    "llama": {},
    "mistral": {"sliding_window": 7},
    "gemma": {},
    "gemma2": {"sliding_window": 5, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    "gemma3_text": {"sliding_window": 5, "query_pre_attn_scalar": 16, "num_hidden_layers": 7},
    "qwen3_moe": EXPERTS,
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "gpt2": {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_inner": 48},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6},
    "deepseek_v3": {
        "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
        "num_key_value_heads": 4, "head_dim": 8,
    },
}  # fmt: skip
"""Model type → settings beside SMALL, of models that may be packed."""
REFUSED = {
    "qwen3_next": EXPERTS | {
        "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "shared_expert_intermediate_size": 24,
    },
    "mamba": {"state_size": 4, "expand": 2},
    "jamba": {
        "num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "num_experts_per_tok": 1,
        "use_mamba_kernels": False, "mamba_d_state": 4, "mamba_dt_rank": 4,
    },
    "bloom": {},
    "llama": {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
}  # fmt: skip


CAPPED = {
    "gemma2": {"final_logit_softcapping": 3.0},
    "gemma3n_text": {
        "final_logit_softcapping": 3.0, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 8, "laurel_rank": 4,
        "num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"], "activation_sparsity_pattern": [0.0, 0.0],
    },
    "recurrent_gemma": {"logits_soft_cap": 3.0, "lru_width": 32, "block_types": ["recurrent", "attention"], "attention_window_size": 64},
    "falcon_h1": {"lm_head_multiplier": 0.25, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8},
    "xlstm": {"output_logit_soft_cap": 3.0, "num_blocks": 2, "num_heads": 2, "embedding_dim": 32},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 4.0},
}  # fmt: skip
"""Model type → settings by which it does more to its logits than its output layer."""


def make_model(folder: Path, kind: str, settings: dict, seed: int = 0, spread: float = 0.15) -> Path:
    """A random model on disk, its weights large enough for attention to matter."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **(SMALL | settings))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def random_tree(rng: np.random.Generator, runs: int, length_max: int, sample: str = "x0", part: int = 0) -> Row:
    """A row of several roots, runs of 1 … length_max tokens, calls of a few tokens each on one path."""
    parents, stack = [-1], [0]
    for run in range(1, runs):
        stack = stack[: int(rng.integers(0 if rng.random() < 0.1 else 1, len(stack) + 1))]
        parents.append(stack[-1] if stack else -1)
        stack.append(run)
    lengths = rng.integers(1, length_max + 1, runs)
    tokens = int(lengths.sum())
    run_of_T = np.repeat(np.arange(runs), lengths)
    starts = np.cumsum(lengths) - lengths
    calls_T = 100 * part + 10 * run_of_T + (np.arange(tokens) - starts[run_of_T]) // 4
    is_first = (np.arange(tokens) == starts[run_of_T]) & (np.array(parents)[run_of_T] < 0)
    targets = (rng.random(tokens) < 0.6) & ~is_first
    if not targets.any():
        return random_tree(rng, runs + 1, length_max + 1, sample, part)
    advantages = rng.standard_normal(1000)
    return Row(
        sample_id=sample, part=part, tokens=pack(rng.integers(0, VOCABULARY, tokens), "int32"),
        run_lengths=pack(lengths, "int32"), run_parents=pack(parents, "int32"),
        sequences=pack(np.where(targets, calls_T, -1), "int32"),
        logprobs=pack(rng.normal(-4, 0.7, tokens)[targets], "float32"),
        versions=pack(rng.integers(0, 3, tokens)[targets], "int32"),
        advantages=pack(advantages[calls_T % 1000][targets], "float32"),
        temperatures=pack(rng.choice([0.7, 1.0], tokens)[targets], "float32"),
    )  # fmt: skip


def micro_of(rows: list[Row], step: int = 3) -> MicroStep:
    return MicroStep(
        micro_id="s000003-g000000-m0", step=step, group_id="g000000", rows=rows, tokens=sum(r.length for r in rows), at_s=0.0
    )  # fmt: skip


def near(policy: Policy, rows: list[Row], seed: int, spread: float = 0.1) -> list[Row]:
    """The rows as if a policy close to this one had sampled them: ratios of about 1 ± spread, so that some are clipped and few vetoed."""
    rng, found = np.random.default_rng(seed), []
    for row in rows:
        with torch.no_grad():
            logp_N = policy.target_logprobs(forest_of([row])).numpy()
        logprobs = logp_N + spread * rng.standard_normal(len(logp_N))
        found.append(msgspec.structs.replace(row, logprobs=pack(logprobs, "float32")))
    return found


def gradient_error(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Largest relative error of a parameter's gradient. One that is below a hundredth of the whole one's norm (queries are at zero where there is one
    key to attend to) is held to that hundredth."""
    whole = torch.stack([gradient.float().norm() for gradient in expected]).norm()
    errors = [
        (a - b).float().norm() / b.float().norm().clamp(min=whole / 100) for a, b in zip(found, expected, strict=True)
    ]
    return float(max(errors))


def plain_logprobs(model: torch.nn.Module, rows: list[Row]) -> torch.Tensor:
    """[N] by the model's own forward of each run's whole context, as plain as can be."""
    found = []
    for row in rows:
        lengths, parents = array(row.run_lengths, "int32"), array(row.run_parents, "int32")
        tokens, temperatures = array(row.tokens, "int32"), array(row.temperatures, "float32")
        contexts: list[list[int]] = []
        at = 0
        for length, parent in zip(lengths, parents, strict=True):
            contexts.append(([] if parent < 0 else contexts[parent]) + list(range(at, at + length)))
            at += length
        for index, temperature in zip(np.flatnonzero(row.targets), temperatures, strict=True):
            run = int(np.searchsorted(np.cumsum(lengths), index, side="right"))
            whole = contexts[run][: contexts[run].index(index) + 1]
            ids = torch.from_numpy(tokens[whole].astype(np.int64))[None]
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits[0, -1].float() / float(temperature)
            found.append(logits.log_softmax(-1)[ids[0, -1]])
    return torch.stack(found)
