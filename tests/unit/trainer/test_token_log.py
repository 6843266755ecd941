"""What the trainer made of single tokens is on record, token by token (C8)."""

import numpy as np
import pytest

from gyre.config import TrainerConfig
from gyre.records import MicroStep
from gyre.token_log import CLIPPED, KEPT, TokenLog, TokensSeen, tokens_of, tokens_seen
from services.trainer.gradient import accumulate
from services.trainer.model import Policy
from services.trainer.tokens import Collected
from tests.integration.trainer.trainer_helpers import make_row


@pytest.fixture(scope="module")
def policy(model_directory) -> Policy:
    return Policy(model_directory)


def read(seen: TokensSeen) -> tuple[list[int], list[int], np.ndarray, np.ndarray]:
    return (
        np.frombuffer(seen.calls, "<i4").tolist(), np.frombuffer(seen.counts, "<i4").tolist(), np.frombuffer(seen.logprobs, "<f4"),
        np.frombuffer(seen.flags, "u1"),
    )  # fmt: skip


def test_targets_are_told_by_call_in_the_order_they_were_sampled():
    seen = tokens_seen(3, np.array([2, 2, 0, 2, 0]), np.array([-1.0, -2, -3, -4, -5]), np.array([1, 3, 1, 0, 1]))
    calls, counts, logprobs, flags = read(seen)
    assert (calls, counts) == ([0, 2], [2, 3])
    assert logprobs.tolist() == [-3, -5, -1, -2, -4] and flags.tolist() == [1, 1, 1, 3, 0]


def test_the_newest_word_on_a_sample_counts_and_torn_frames_are_passed_over(tmp_path):
    one = tokens_seen(1, np.array([0]), np.array([-1.0]), np.array([KEPT]))
    two = tokens_seen(2, np.array([0]), np.array([-2.0]), np.array([KEPT | CLIPPED]))
    first, second = TokenLog(tmp_path, "cell-0"), TokenLog(tmp_path, "cell-1")
    first.put([("a", one), ("b", one)])
    path = tmp_path / "cell-0.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # b's frame is torn
    assert tokens_of(tmp_path, "b") is None
    first.put([("c", one), ("b", two)])
    assert tokens_of(tmp_path, "b") == two, "a torn frame takes the one behind it along, and no more"
    second.put([("a", two)])
    assert tokens_of(tmp_path, "a") == two and tokens_of(tmp_path, "nobody") is None


def test_ratios_of_the_log_have_the_mean_that_the_step_reports(policy):
    """The sums of SampleSeen are over exactly these tokens: Σ ρ = Σ exp(log π − log μ), and as many are kept."""
    rows = [make_row("a", 1), make_row("b", 2)]
    collected = Collected()
    micro = MicroStep(
        micro_id="m", step=0, group_id="g000000", rows=rows, tokens=sum(row.length for row in rows), at_s=0.0
    )
    seen = accumulate(policy, micro, TrainerConfig(objective="cispo"), collected)
    policy.model.zero_grad(set_to_none=True)
    found = dict(collected.seen(7))
    assert set(found) == {"a", "b"}
    for row in rows:
        calls_N = np.frombuffer(row.sequences, "<i4")
        calls_N = calls_N[calls_N >= 0]
        behaviour = np.frombuffer(row.logprobs, "<f4")[np.argsort(calls_N, kind="stable")]
        _, counts, logprobs, flags = read(found[row.sample_id])
        assert sum(counts) == len(behaviour) and found[row.sample_id].step == 7
        sums = seen[row.sample_id].sums
        assert np.isclose(np.exp(logprobs - behaviour).sum(), sums["ratio"], rtol=1e-4)
        assert (flags & KEPT > 0).sum() == sums["kept"] and (flags & CLIPPED > 0).sum() == sums["clipped"]
