"""What the elite store replays, at the trainer: its objective, and that it stands in the gradient and not among the batch's samples (D9)."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from gyre.config import TrainerConfig
from gyre.errors import InvariantBroken
from gyre.records import MicroStep, Row, array, pack
from services.trainer.core.divisor import divisor
from services.trainer.core.facts import batch_of
from services.trainer.gradient import SampleSeen, accumulate, config_of
from services.trainer.model import Policy
from services.trainer.optimizer import flat_gradient
from services.trainer.packed.forest import forest_of
from services.trainer.report import MicroSeen, trained_samples
from tests.integration.trainer.trainer_helpers import make_row
from tests.unit.trainer.test_learner import closed

GSPO = TrainerConfig(objective="gspo", corrections=["veto", "tis_sequence"])


def micro(rows: list[Row], is_elite: bool) -> MicroStep:
    return MicroStep(micro_id="m", step=0, group_id="g", rows=rows, tokens=1, at_s=0.0, is_elite=is_elite)


def test_a_replay_has_truncated_weights_by_token_under_the_runs_masks():
    """D9: the policy gradient; of the run's corrections the masks stay and the weight by sequence becomes one by token."""
    assert config_of(micro([], False), GSPO) is GSPO
    found = config_of(micro([], True), GSPO)
    assert (found.objective, found.corrections) == ("policy_gradient", ["veto", "tis_token"])


def test_under_a_clipped_objective_an_old_success_still_moves_the_policy(model_directory):
    """D9: behaviour log-probabilities 0.5 below the policy's, so every ratio is e^0.5 = 1.65, outside GSPO's clip of 1.005 for a positive advantage:
    GSPO alone has no gradient, the replay has that of the weighted policy gradient."""
    policy = Policy(model_directory)
    row = make_row("a", 1, 20)
    with torch.no_grad():
        logp_N = policy.target_logprobs(forest_of([row])).numpy()
    size = len(array(row.logprobs, "float32"))
    behaviour = np.zeros(size, np.float32)
    behaviour[row.targets if size == row.length else slice(None)] = logp_N - 0.5
    row = msgspec.structs.replace(
        row, logprobs=pack(behaviour, "float32"), advantages=pack(np.where(array(row.advantages, "float32") != 0, 1.0, 0.0), "float32")
    )  # fmt: skip

    def gradient(is_elite: bool, config: TrainerConfig) -> torch.Tensor:
        policy.model.zero_grad(set_to_none=True)
        accumulate(policy, micro([row], is_elite), config)
        return flat_gradient(policy.parameters).clone()

    assert gradient(False, GSPO).abs().max() == 0
    replayed_P = gradient(True, GSPO)
    assert replayed_P.abs().max() > 0
    plain = TrainerConfig(objective="policy_gradient", corrections=["veto", "tis_token"])
    torch.testing.assert_close(replayed_P, gradient(False, plain))


def test_replays_are_in_the_gradient_and_the_divisor_and_not_among_the_updates_samples():
    """D9: two executions of the batch and one replayed: the mean is over three, the batch names two; a sample that nobody listed, or that stands
    in both, is refused."""
    fact = msgspec.structs.replace(closed(["m0", "m1"], ["a", "b"], 3, 0, 0), elites=["old"])
    batch = batch_of(fact)
    sums = {"loss": 1.0, "targets": 4.0, "kept": 4.0}
    seen = {
        "m0": MicroSeen("cell-0", {"a": SampleSeen(sums), "b": SampleSeen(sums)}, 0.1),
        "m1": MicroSeen("cell-1", {"old": SampleSeen(sums)}, 0.1),
    }
    micro_cells = {name: what.cell for name, what in seen.items()}
    by_sample = trained_samples(batch, micro_cells, seen)
    assert sorted(by_sample) == ["a", "b", "old"]
    assert divisor("execution", 0, batch, by_sample) == 3 and divisor("token", 0, batch, by_sample) == 12
    with pytest.raises(InvariantBroken, match="not in the batch"):
        trained_samples(replace(batch, elites=()), micro_cells, seen)
    with pytest.raises(InvariantBroken, match="stands twice"):
        trained_samples(replace(batch, elites=("a",)), micro_cells, seen)
    assert batch.sample_ids == ("a", "b"), "what StepUpdated names"
