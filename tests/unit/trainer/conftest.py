"""A tiny policy on disk, and rows by hand."""

import pytest
import torch

from tests.integration.trainer.trainer_helpers import make_model


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_directory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer") / "model"
    make_model(folder)
    return folder
