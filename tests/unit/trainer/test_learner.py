"""From summed reports and a summed gradient to an update and its fact: the norm's divisor and the step size (B7, C8)."""

import pytest
import torch

from gyre.clock import ManualClock
from gyre.config import Config, ModelConfig, RunConfig, TrainerConfig
from gyre.errors import GaveUp
from gyre.records import BatchClosed, MicroStep
from gyre.run_folder import RunFolder
from services.trainer.core.events import Batch
from services.trainer.core.facts import batch_of
from services.trainer.gradient import accumulate
from services.trainer.learner import Learner
from services.trainer.losses.metrics import summarise
from services.trainer.model import Policy
from services.trainer.optimizer import flat_gradient
from services.trainer.report import MicroSeen, trained_samples
from tests.integration.trainer.trainer_helpers import make_row

NORMS = ("execution", "token", "sequence", "constant")


def closed(micro_ids: list[str], sample_ids: list[str], executions: int, targets: int, sequences: int) -> BatchClosed:
    return BatchClosed(
        step=0, cause="turns", turns=1, turns_target=1, groups=[], sample_ids=sample_ids, micro_ids=micro_ids, divisor=executions,
        truncated_share=0.0, failed_share={}, no_gradient=False, staleness_mean=0.0, staleness_max=0, at_s=0.0,
        untrained_targets=targets, untrained_sequences=sequences,
    )  # fmt: skip


def update(model_directory, folder, cells: list[list[str]], trainer: TrainerConfig):
    """Three samples, trained by the cells that have them, one micro-step a cell; beside them two executions of 7 tokens and 3 calls without
    gradient. Returns the fact, the gradient before the divisor, and the batch."""
    policy = Policy(model_directory)
    run = RunFolder(folder)
    run.make()
    config = Config(run=RunConfig(seed=1), model=ModelConfig(path=str(model_directory)), trainer=trainer)
    learner = Learner(run, config, policy, ManualClock(5.0))
    rows = {name: make_row(name, seed, 10 + 7 * seed) for seed, name in enumerate(("a", "b", "c"))}
    total_P, seen = torch.zeros_like(flat_gradient(policy.parameters)), {}
    for number, names in enumerate(cells):
        policy.model.zero_grad(set_to_none=True)
        micro = MicroStep(
            micro_id=f"m{number}", step=0, group_id="g", rows=[rows[n] for n in names], tokens=1, at_s=0.0
        )
        seen[micro.micro_id] = MicroSeen(f"cell-{number}", accumulate(policy, micro, trainer), 0.1)
        total_P += flat_gradient(policy.parameters)
    policy.model.zero_grad(set_to_none=True)
    batch = batch_of(closed(list(seen), list(rows), 5, 7, 3))
    micro_cells = {name: what.cell for name, what in seen.items()}
    by_sample = trained_samples(batch, micro_cells, seen)
    fact = learner.update(total_P.clone(), batch, micro_cells, by_sample, {}, 0.0)
    return fact, total_P, by_sample


def learner_in(model_directory, folder, kept: int = 2) -> Learner:
    run = RunFolder(folder)
    run.make()
    config = Config(model=ModelConfig(path=str(model_directory)), trainer=TrainerConfig(checkpoints_kept=kept))
    return Learner(run, config, Policy(model_directory), ManualClock(5.0))


def test_a_run_whose_newest_checkpoint_is_damaged_does_not_go_on_without_the_steps_it_had(model_directory, tmp_path):
    """A2, D10. Versions 1 and 2 are made, and 2 is damaged. Where step 1 is on record its micro-steps are gone: the core gives up, and says which
    folder it is; where a crash came before the fact they come again, and version 2 is made anew. The whole one stays in either case."""
    learner = learner_in(model_directory, tmp_path)
    for _ in range(2):
        learner.update(None, Batch((), (), 1), {}, {}, {}, 0.0)
    (tmp_path / "checkpoints" / "v000002" / "state.msgpack").write_bytes(b"torn")
    again = learner_in(model_directory, tmp_path, kept=1)
    assert again.version == 1 and again.checkpoint.weights.exists()
    with pytest.raises(GaveUp, match=r"version 2 is on record.*of version 1; damaged: .*v000002\."):
        again.check_goes_on({0, 1})
    again.check_goes_on({0})
    again.update(None, Batch((), (), 1), {}, {}, {}, 0.0)
    assert learner_in(model_directory, tmp_path).version == 2


def test_a_run_of_which_no_checkpoint_is_whole_is_not_begun_anew(model_directory, tmp_path):
    """A2. Version 0 would be written beside what is left, and the newest kept."""
    learner_in(model_directory, tmp_path)
    (tmp_path / "checkpoints" / "v000000" / "optimizer.pt").unlink()
    with pytest.raises(GaveUp, match="none of the checkpoints v000000"):
        learner_in(model_directory, tmp_path)


@pytest.mark.parametrize("norm", NORMS)
def test_an_update_is_the_same_whichever_cells_took_part(model_directory, tmp_path, norm):
    """B7, A8. One cell with everything, or three cells with a sample each: the same to floating-point noise. The divisor is counted
    here: 5 executions; targets and calls of the rows and the 7 and 3 of those without gradient; 5 · 20."""
    trainer = TrainerConfig(
        objective="cispo", norm=norm, norm_constant=20 if norm == "constant" else 0, grad_norm_max=1e9
    )
    whole, total_P, by_sample = update(model_directory, tmp_path / "one", [["a", "b", "c"]], trainer)
    apart, _, _ = update(model_directory, tmp_path / "three", [["b"], ["c"], ["a"]], trainer)
    rows = [make_row(name, seed, 10 + 7 * seed) for seed, name in enumerate(("a", "b", "c"))]
    right = {
        "execution": 5,
        "token": sum(int(row.targets.sum()) for row in rows) + 7,
        "sequence": sum(int(sums["sequences"]) for sums in by_sample.values()) + 3,
        "constant": 5 * 20,
    }[norm]
    assert whole.metrics["divisor"] == apart.metrics["divisor"] == right
    for name in ("loss", "grad_norm", "kl_k3", "ess", "chi2"):
        assert apart.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-4)
    assert whole.metrics["grad_norm"] == pytest.approx(total_P.norm().item() / right, rel=1e-4)


def test_the_step_shrinks_where_few_tokens_carry_the_weight(model_directory, tmp_path):
    """C8. With the line at 1 (any spread of the weights counts) the step size is lr · √ess; with the line at 0 it is lr."""
    shrunk, _, by_sample = update(
        model_directory, tmp_path / "a", [["a", "b", "c"]], TrainerConfig(ess_min=1.0, lr=0.01)
    )
    total = {key: sum(sums.get(key, 0.0) for sums in by_sample.values()) for key in by_sample["a"]}
    ess = summarise(total)["ess"]
    assert 0.5 < ess < 1.0
    assert shrunk.metrics["ess"] == pytest.approx(ess)
    assert shrunk.metrics["ess_factor"] == pytest.approx(ess**0.5)
    assert shrunk.metrics["lr"] == pytest.approx(0.01 * ess**0.5)
    plain, _, _ = update(model_directory, tmp_path / "b", [["a", "b", "c"]], TrainerConfig(ess_min=0.0, lr=0.01))
    assert (plain.metrics["ess_factor"], plain.metrics["lr"]) == (1.0, pytest.approx(0.01))
