"""A model that always says one thing, served by a real cell: tests need replies that are tool calls, and ones that are nearly so.

Each token has its own dimension, attention and MLP add nothing, and the output layer maps a token to its one successor.
"""

from itertools import pairwise
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from examples.repair.model import END_OF_TURN, make_tokenizer

HEAD = '{"name": "act", "arguments": {'
CALL = ("\n", "<tool_call>", HEAD, "}}", "</tool_call>", END_OF_TURN)
NO_JSON = ("\n", "<tool_call>", HEAD, "</tool_call>", END_OF_TURN)
"""What is said after the end of the generation prompt."""

CERTAIN = 5.0
"""Times √hidden ≈ 18 after the norm: 90 above every other logit."""


def make(folder: Path) -> None:
    """A Hugging Face directory with CALL as the only answer."""
    torch.set_num_threads(1)
    tokenizer = make_tokenizer(iter([f"<tool_call>{HEAD}}}}}</tool_call>\n"] * 50), 512)
    size = -(-len(tokenizer) // 64) * 64
    config = Qwen3Config(
        vocab_size=size, hidden_size=size, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, use_cache=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, dtype="float32",
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.lm_head.weight.copy_(successors(tokenizer, size, CALL))
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def successors(tokenizer, size: int, says: tuple[str, ...]) -> torch.Tensor:
    """The output layer's weights, [size, size]."""
    ids = tokenizer.convert_tokens_to_ids([tokenizer.tokenize(text)[0] for text in says])
    assert len(set(ids)) == len(says) and all(len(tokenizer.tokenize(text)) == 1 for text in says)
    weights = torch.zeros(size, size)
    for token, following in pairwise(ids):
        weights[following, token] = CERTAIN
    return weights


def say_from_now_on(model_dir: Path, out: Path, says: tuple[str, ...]) -> None:
    """Weights to publish, after which it says something else."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoTokenizer

    weights = load_file(model_dir / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    weights["lm_head.weight"] = successors(tokenizer, len(weights["lm_head.weight"]), says)
    save_file(weights, out, metadata={"format": "pt"})
