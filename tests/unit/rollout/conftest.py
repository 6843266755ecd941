"""The example's own tokenizer and chat template: real ones, made in under a second, no model weights."""

import pytest

from examples.repair.model import make_tokenizer
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate


def texts():
    yield from ["hello world", '<tool_call>\n{"name": "read_file", "arguments": {"path": "a.py"}}\n</tool_call>'] * 50
    yield "the quick brown fox jumps over the lazy dog\nüäö → 日本語\nuser\nassistant\nsystem"


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(texts(), 600).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(model_dir) -> Model:
    return Model(ChatTemplate.load(model_dir))
