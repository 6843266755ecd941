"""A real small language model, SmolLM2-135M, on vLLM in float32 (A4, B8)."""

import os
from pathlib import Path

import numpy as np
import pytest

from gyre.config.sections import VllmConfig
from services.rollout.engine import FinishReason
from services.rollout.engine.vllm.engine import VllmEngine
from services.rollout.engine.vllm.process import VllmProcess
from services.trainer.model import Policy
from tests.vllm.conftest import PYTHON
from tests.vllm.reference import WAIT_S, change, logprobs, start, wait_until

MODEL = os.environ.get("GYRE_SMOLLM2", "")
CONTEXT_MAX = 4096
"""Far more than is sampled while the new weights, half a gigabyte, are read and checked: the update finds the call in flight."""
TOLERANCE = 1e-4

pytestmark = pytest.mark.skipif(not MODEL, reason="needs SmolLM2-135M: make test-vllm")


@pytest.fixture(scope="module")
def versions(tmp_path_factory) -> list[Path]:
    changed = tmp_path_factory.mktemp("smollm2") / "1"
    change(Path(MODEL), changed, seed=2)
    return [Path(MODEL), changed]


def test_log_probabilities_agree_before_and_after_an_update_in_flight(versions, tmp_path):
    """B8, A4: 30 layers, 49,152 tokens of vocabulary: each token's is the trainer's of the version it is labelled with."""
    config = VllmConfig(python=PYTHON, start_s=1200.0, stream_tokens=1, update_s=300.0)
    process = VllmProcess(versions[0], 4, CONTEXT_MAX, config, "cpu", 1, tmp_path / "vllm.log")
    engine = VllmEngine(versions[0], 4, CONTEXT_MAX, config, process)
    prompt = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198]
    try:
        engine.load(versions[0], 0)
        first = start(engine, "first", prompt, tokens=40, temperature=0.8).wait(WAIT_S)
        flying = start(engine, "flying", prompt, tokens=CONTEXT_MAX - len(prompt))
        assert flying.first.wait(WAIT_S)
        engine.load(versions[1], 1)
        wait_until(lambda: flying.joined("versions").count(1) >= 40)
        engine.abort("flying")
        assert flying.wait(WAIT_S).finish is FinishReason.ABORTED
    finally:
        engine.close()
    sampled, found = np.array(flying.joined("versions")), np.array(flying.joined("logprobs"))
    assert set(sampled.tolist()) == {0, 1}
    for version, path in enumerate(versions):
        policy = Policy(path)
        if version == 0:
            assert (
                np.abs(logprobs(policy, prompt, first.ids, 0.8) - np.array(first.joined("logprobs"))).max() < TOLERANCE
            )
        difference = np.abs(logprobs(policy, prompt, flying.ids) - found)
        assert difference[sampled == version].max() < TOLERANCE
        assert difference[sampled != version].max() > 100 * TOLERANCE
