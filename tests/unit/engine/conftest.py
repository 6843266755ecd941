"""Tiny random models and an engine that is always closed."""

import pytest
import torch
from engine_helpers import SIZES
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from services.rollout.engine import Engine


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_dirs(tmp_path_factory) -> dict[str, str]:
    """qwen3 (tied embeddings) and llama (untied), and qwen3-next-version: the same names, other numbers."""
    root = tmp_path_factory.mktemp("models")
    configs = {
        "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=True),
        "qwen3-new": Qwen3Config(**SIZES, tie_word_embeddings=True),
        "llama": LlamaConfig(**SIZES, tie_word_embeddings=False),
    }
    for seed, (name, config) in enumerate(configs.items()):
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(root / name)
    return {name: str(root / name) for name in configs}


@pytest.fixture(scope="session")
def plain(model_dirs):
    """Models as transformers runs them by itself, in eager attention: the reference."""
    return {
        name: AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        for name, path in model_dirs.items()
    }


@pytest.fixture
def make_engine(model_dirs):
    engines = []

    def make(name: str = "qwen3", slots: int = 4, context_max: int = 256, **kwargs) -> Engine:
        engines.append(Engine(model_dirs[name], slots=slots, context_max=context_max, **kwargs))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()
