"""A tiny model in two versions, and an engine over the fake server that is always closed."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from gyre.config.sections import VllmConfig
from services.rollout.engine.vllm.engine import VllmEngine
from tests.unit.vllm.fake import FakeProcess

CONTEXT_MAX = 64


@pytest.fixture(scope="session")
def versions(tmp_path_factory) -> list[Path]:
    """Model directories: the same names, other numbers."""
    root = tmp_path_factory.mktemp("models")
    config = Qwen3Config(
        vocab_size=160, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
        head_dim=32, max_position_embeddings=CONTEXT_MAX, tie_word_embeddings=True,
    )  # fmt: skip
    for version in range(3):
        torch.manual_seed(version)
        AutoModelForCausalLM.from_config(config).save_pretrained(root / str(version))
    return [root / str(version) for version in range(3)]


@pytest.fixture
def fake(tmp_path_factory) -> FakeProcess:
    # not tmp_path: a socket's name has at most 107 bytes
    return FakeProcess(str(tmp_path_factory.mktemp("s") / "s"))


@pytest.fixture
def engine(versions, fake):
    made = VllmEngine(versions[0], 4, CONTEXT_MAX, VllmConfig(update_s=30.0), fake)
    yield made
    made.close()
