"""A sample that cannot be trained is set aside whole, and the rest of its micro-step, batch and run go on without a trace of it (B1, E)."""

import asyncio
import math
import signal
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from gyre.bus import BlobStore
from gyre.clock import ManualClock
from gyre.config import Config, ModelConfig, RunConfig, TrainerConfig
from gyre.errors import ConfigError, GaveUp
from gyre.records import MicroStep, Row, pack
from gyre.run_folder import RunFolder
from services.trainer.begun import DEATHS_MAX, Begun
from services.trainer.claimant import Claimant
from services.trainer.claims import Claims
from services.trainer.compute import Compute
from services.trainer.core.divisor import divisor
from services.trainer.core.events import Batch, Verdict
from services.trainer.gradient import GRADIENT_NORM_MAX, SampleSeen, accumulate
from services.trainer.learner import Learner
from services.trainer.model import Policy, check_device
from services.trainer.optimizer import NotFinite, Optimizer, flat_gradient
from services.trainer.report import MicroSeen, refused_samples, trained_samples
from services.trainer.rpc import computed_message, seen_of
from services.trainer.tokens import Collected
from tests.integration.trainer.trainer_helpers import VOCAB, make_row

CONFIG = TrainerConfig(objective="cispo", lr=1e-2, corrections=[])
"""Without a veto, which would leave out some of what is impossible."""


def micro(rows: list[Row]) -> MicroStep:
    return MicroStep(micro_id="s000000-g-m0", step=0, group_id="g", rows=rows, tokens=1, at_s=0.0)


def spoilt(name: str, **fields: object) -> Row:
    """A sound row with one field of all targets changed: a number, or bytes."""
    row = make_row(name, 7, 20)
    targets = int(row.targets.sum())
    dtypes = {"versions": "int32"}
    return msgspec.structs.replace(
        row,
        **{
            field: value if isinstance(value, bytes) else pack(np.full(targets, value), dtypes.get(field, "float32"))
            for field, value in fields.items()
        },
    )


POISON = {
    "a log-probability that is none": spoilt("p", logprobs=math.nan),
    "half a number": spoilt("p", advantages=b"\0\0\0"),
    "a token beyond the vocabulary": spoilt("p", tokens=pack(np.full(20, VOCAB), "int32")),
    "a version that is yet to be made": spoilt("p", versions=1),
    "a temperature that makes logits infinite": spoilt("p", temperatures=1e-44),
    "an advantage beyond all reason": spoilt("p", advantages=-1e30),
    "a gradient that cannot be added up": spoilt("p", temperatures=1e-30),
}


@pytest.fixture
def policy(model_directory) -> Policy:
    return Policy(model_directory)


def gradient_of(policy: Policy, rows: list[Row], config: TrainerConfig = CONFIG, collected: Collected | None = None):
    policy.model.zero_grad(set_to_none=True)
    seen = accumulate(policy, micro(rows), config, collected)
    return flat_gradient(policy.parameters), seen


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_what_is_impossible_is_refused_alone_with_its_reason(policy, poison):
    """One forward holds all three; the sound two give the gradient and the figures that they give without the third, which says why it does not."""
    sound = [make_row("a", 1), make_row("b", 2)]
    right_P, right = gradient_of(policy, sound)
    collected = Collected()
    found_P, seen = gradient_of(policy, [sound[0], poison, sound[1]], collected=collected)
    assert right_P.any() and (found_P - right_P).norm() < 1e-5 * right_P.norm()
    assert {name: bool(sample.refused) for name, sample in seen.items()} == {"a": False, "p": True, "b": False}
    assert seen["p"].sums == {}
    for name in ("a", "b"):
        assert seen[name].sums == pytest.approx(right[name].sums, rel=1e-4, abs=1e-5)
    assert [name for name, _ in collected.seen(0)] == ["a", "b"], (
        "single tokens are on record once, and only of what is trained"
    )


def test_a_sample_over_several_forwards_is_in_the_gradient_whole_or_not_at_all(policy):
    """Its first row is sound and is computed first, its second is not: the accumulators hold what they held, to the bit."""
    config = msgspec.structs.replace(CONFIG, forward_tokens_max=30)
    before_P, _ = gradient_of(policy, [make_row("a", 1)], config)
    bad = msgspec.structs.replace(spoilt("p", temperatures=1e-30), part=1)
    seen = accumulate(policy, micro([make_row("p", 3, 20), bad]), config)
    assert "gradient of norm" in seen["p"].refused and torch.equal(flat_gradient(policy.parameters), before_P)


def test_the_largest_gradient_that_is_taken_can_be_added_up_ten_thousand_times():
    """Its square times 10⁸ is a float32: the norm of the sum is a number, so no sum of what was taken is refused by the optimizer."""
    assert np.isfinite(np.float32(GRADIENT_NORM_MAX * 1e4) ** 2)


def test_a_micro_step_of_nothing_but_poison_has_no_gradient(policy):
    found_P, seen = gradient_of(policy, list(POISON.values())[:1])
    assert not found_P.any() and seen["p"].refused


def test_refusals_reach_the_core_as_they_were_said():
    seen = {"a": SampleSeen({"loss": 1.0}, "t"), "p": SampleSeen({}, "t", "why")}
    assert seen_of(computed_message("m", seen, 0.1).computed) == seen


async def test_rows_that_are_lost_cost_their_samples_and_not_the_cell(tmp_path):
    """The blob of a micro-step is gone: its samples are named in the message, and each is refused; nothing is raised."""
    told: list[tuple] = []

    async def ask(_micro: MicroStep) -> Verdict:
        return Verdict.COMPUTE

    async def report(*words: object) -> None:
        told.append(words)

    gone = msgspec.structs.replace(micro([]), blob="0" * 64, sample_ids=["x", "y"])
    await Claimant(Claims(None, BlobStore(tmp_path), 1.0), None, Begun(tmp_path / "begun"), 1.0, ask, report)._settle(
        gone
    )
    ((name, seen, compute_s),) = told
    assert (name, compute_s, set(seen)) == (gone.micro_id, 0.0, {"x", "y"}) and all(
        one.refused for one in seen.values()
    )


@pytest.mark.parametrize("allocate", [torch.empty, np.empty], ids=["torch", "numpy"])
def test_a_sample_that_wants_more_memory_than_a_cpu_has_is_refused_alone(policy, monkeypatch, allocate):
    """The real errors, of 4 PiB: of two samples in one forward the one of 60 tokens asks for them; any other error is a defect and is raised."""
    right_P, _ = gradient_of(policy, [make_row("a", 1)])
    whole = policy.target_logprobs

    def hungry(forest):
        if len(forest.tokens_T) >= 60:
            allocate(2**50)
        return whole(forest)

    monkeypatch.setattr(policy, "target_logprobs", hungry)
    found_P, seen = gradient_of(policy, [make_row("a", 1), make_row("p", 2, 60)])
    assert not seen["a"].refused and "llocat" in seen["p"].refused and torch.equal(found_P, right_P)

    def broken(_forest):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(policy, "target_logprobs", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        gradient_of(policy, [make_row("a", 1)])


async def test_what_killed_every_process_that_computed_it_is_refused_and_what_one_was_killed_in_is_not(tmp_path):
    """Real deaths, by SIGKILL in the midst of it: after one, and after one less than the bound, it is computed; then its samples are set aside,
    and that stays so until its step is done. What was computed leaves no mark."""
    program = (
        "import os, pathlib, signal, sys; from services.trainer.begun import Begun\n"
        "with Begun(pathlib.Path(sys.argv[1])).computing('s000000-g-m0'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    root, computed, told = Path(__file__).parents[3], [], []

    class Alive:
        async def micro_step(self, micro: MicroStep):
            computed.append(micro.micro_id)
            return {"a": SampleSeen({"loss": 1.0})}, 0.1

    async def ask(_micro: MicroStep) -> Verdict:
        return Verdict.COMPUTE

    async def report(_name: str, seen: dict[str, SampleSeen], _compute_s: float) -> None:
        told.append({sample: bool(one.refused) for sample, one in seen.items()})

    begun = Begun(tmp_path / "begun")
    claimant = Claimant(Claims(None, BlobStore(tmp_path), 1.0), Alive(), begun, 1.0, ask, report)
    for deaths in (1, DEATHS_MAX - 1, DEATHS_MAX):
        for _ in range(deaths):
            dying = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, str(tmp_path / "begun"), cwd=root
            )
            assert await dying.wait() == -signal.SIGKILL
        assert begun.deaths("s000000-g-m0") == deaths
        await claimant._settle(micro([make_row("a", 1)]))
    assert told == [{"a": False}, {"a": False}, {"a": True}] and len(computed) == 2
    assert begun.deaths("s000000-g-m0") == DEATHS_MAX
    begun.forget(["s000000-g-m0"])
    assert not list((tmp_path / "begun").iterdir())


async def test_a_cell_says_in_its_log_what_it_refuses(policy, caplog):
    compute = Compute("cell-1", policy, CONFIG, ManualClock(5.0))
    await compute.micro_step(micro([POISON["a version that is yet to be made"]]))
    compute.close()
    assert "p is set aside" in caplog.text and "trained in step 0" in caplog.text


SUMS = {"loss": 1.0, "targets": 4.0, "kept": 4.0}


def test_a_mean_is_over_what_is_trained():
    """B7: of three executions and one replay, one execution is refused: three count, under `execution` and times the constant; it is in no sum over
    tokens. When nothing is left the divisor is 1."""
    batch = Batch(("m0", "m1"), ("a", "b", "p"), 4, elites=("old",))
    seen = {
        "m0": MicroSeen("cell-0", {"a": SampleSeen(SUMS), "p": SampleSeen(refused="why")}, 0.1),
        "m1": MicroSeen("cell-1", {"b": SampleSeen(SUMS), "old": SampleSeen(SUMS)}, 0.1),
    }
    by_sample = trained_samples(batch, {"m0": "cell-0", "m1": "cell-1"}, seen)
    assert sorted(by_sample) == ["a", "b", "old"] and refused_samples(seen) == {"p": "why"}
    left = batch.without({"p"})
    assert (left.sample_ids, left.elites, left.divisor) == (("a", "b"), ("old",), 3)
    assert divisor("execution", 0, left, by_sample) == 3 and divisor("token", 0, left, by_sample) == 12
    assert divisor("constant", 20, left, by_sample) == 60
    assert batch.without({"a", "b", "p", "old"}).divisor == 1


def learner_of(model_directory, folder, policy: Policy, trainer: TrainerConfig = CONFIG) -> Learner:
    run = RunFolder(folder)
    run.make()
    config = Config(run=RunConfig(seed=1), model=ModelConfig(path=str(model_directory)), trainer=trainer)
    return Learner(run, config, policy, ManualClock(5.0))


def test_an_update_and_its_checkpoint_name_what_was_trained_and_what_was_not(model_directory, tmp_path, policy):
    """The weights are those of a batch that never held the refused sample."""
    gradient_P, seen = gradient_of(policy, [make_row("a", 1)])
    by_sample = {"a": seen["a"].sums}
    learner = learner_of(model_directory, tmp_path / "with", policy)
    fact = learner.update(
        gradient_P.clone(), Batch(("m",), ("a", "p"), 2), {"m": "cell-0"}, by_sample, {}, 0.0, refused={"p": "why"}
    )
    assert (fact.sample_ids, fact.set_aside, fact.metrics["set_aside"], fact.metrics["divisor"]) == (
        ["a"],
        {"p": "why"},
        1,
        1,
    )
    assert learner.checkpoint.state.sample_ids == ["a"]
    other = Policy(model_directory)
    without = learner_of(model_directory, tmp_path / "without", other)
    without.update(gradient_P.clone(), Batch(("m",), ("a",), 1), {"m": "cell-0"}, by_sample, {}, 0.0)
    assert all(torch.equal(policy.tensors()[name], tensor) for name, tensor in other.tensors().items())


def test_a_sum_that_is_not_finite_changes_nothing(model_directory, tmp_path, policy):
    """Weights, running averages, version and disk are as before: the same batch can be computed again."""
    learner = learner_of(model_directory, tmp_path, policy)
    gradient_P, seen = gradient_of(policy, [make_row("a", 1)])
    batch, by_sample = Batch(("m",), ("a",), 1), {"a": seen["a"].sums}
    learner.update(gradient_P.clone(), batch, {}, by_sample, {}, 0.0)
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}
    averages = learner._optimizer.state()["state"][0]["exp_avg"].clone()
    gradient_P[3] = math.inf
    with pytest.raises(NotFinite, match="nothing of it is applied"):
        learner.update(gradient_P, batch, {}, by_sample, {}, 0.0)
    assert learner.version == 1 and not (tmp_path / "checkpoints" / "v000002").exists()
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.tensors().items())
    assert torch.equal(learner._optimizer.state()["state"][0]["exp_avg"], averages)


def test_weights_that_are_not_finite_are_never_written(policy):
    """A finite gradient and a learning rate beyond all reason: the process gives up and says which setting."""
    optimizer = Optimizer(policy.parameters, TrainerConfig(lr=3e37))
    with pytest.raises(GaveUp, match=r"trainer\.lr is 3e"):
        for step in range(50):
            optimizer.step(torch.ones_like(flat_gradient(policy.parameters)), 1, step)


def test_a_model_whose_weights_are_no_numbers_is_refused_at_the_start(model_directory, tmp_path):
    """Else every sample of the run would be set aside."""
    bad = Policy(model_directory)
    with torch.no_grad():
        bad.parameters[0][3] = math.nan
    bad.model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not finite"):
        Policy(tmp_path)


def test_a_model_directory_that_lacks_some_weights_is_refused(model_directory, tmp_path):
    """transformers would draw them at random and train on."""
    import safetensors.torch

    for path in model_directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    gone = next(name for name in tensors if "mlp" in name)
    del tensors[gone]
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ConfigError, match="lacks weights"):
        Policy(tmp_path)


@pytest.mark.parametrize("device", ["gpu99", "cuda:4096", ""])
def test_a_device_that_is_not_there_is_refused_at_the_start(device):
    """Not when the cell first trains, an hour later."""
    check_device("cpu")
    with pytest.raises(ConfigError, match=rf"trainer\.device `{device}` cannot be used: \w+"):
        check_device(device)
