"""The way from rows to weights: log-probabilities, invariance, what moves and what does not."""

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from gyre.config import TrainerConfig
from gyre.errors import ConfigError, InvalidInput, InvariantBroken
from gyre.records import MicroStep, Row, array, pack
from services.trainer.core.plan import learning_rate
from services.trainer.gradient import accumulate, check_row
from services.trainer.losses.metrics import add_up
from services.trainer.model import Policy
from services.trainer.optimizer import Optimizer, flat_gradient
from services.trainer.packed.forest import forest_of
from services.trainer.packed.forwards import plan_forwards
from tests.integration.trainer.trainer_helpers import VOCAB, make_row

CONFIG = TrainerConfig(objective="cispo", lr=1e-2)
"""An objective under which every token with an advantage has a gradient, whatever its ratio."""


def micro(rows: list[Row], name: str = "s000000-g000000-m0") -> MicroStep:
    return MicroStep(micro_id=name, step=0, group_id="g000000", rows=rows, tokens=sum(r.length for r in rows), at_s=0.0)


@pytest.fixture(scope="module")
def policy(model_directory) -> Policy:
    return Policy(model_directory)


def gradient_of(policy: Policy, cells: list[list[list[Row]]], config: TrainerConfig = CONFIG):
    """Cells of micro-steps of rows → the sum over cells of their accumulators, and all sums seen."""
    total_P, seen = torch.zeros_like(flat_gradient(policy.parameters)), []
    for micros in cells:
        policy.model.zero_grad(set_to_none=True)
        for rows in micros:
            seen += [sample.sums for sample in accumulate(policy, micro(rows), config).values()]
        total_P += flat_gradient(policy.parameters)
    policy.model.zero_grad(set_to_none=True)
    return total_P, add_up(seen)


def test_log_probabilities_are_those_of_one_plain_forward(policy, model_directory):
    """B1, C8. Packing, selection of targets and temperature change nothing but where they should."""
    plain = AutoModelForCausalLM.from_pretrained(model_directory, attn_implementation="eager")
    rows = [make_row("a", 1, 20), make_row("b", 2, 11)]
    rows[1] = msgspec.structs.replace(rows[1], temperatures=pack(np.full(rows[1].targets.sum(), 0.7), "float32"))
    expected = []
    for row, temperature in zip(rows, (1.0, 0.7), strict=True):
        ids = torch.tensor(array(row.tokens, "int32").copy()).long()
        logits = plain(ids[None]).logits[0, :-1] / temperature
        logp = logits.log_softmax(-1)[torch.arange(row.length - 1), ids[1:]]
        expected.append(logp[torch.from_numpy(row.targets)[1:]])
    found_N = policy.target_logprobs(forest_of(rows))
    torch.testing.assert_close(found_N, torch.cat(expected), atol=1e-5, rtol=1e-5)
    policy._plain_output = False
    try:
        slow_N = policy.target_logprobs(forest_of(rows))
    finally:
        policy._plain_output = True
    torch.testing.assert_close(slow_N, found_N, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("objective", ["cispo", "grpo", "gspo"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_the_gradient_does_not_depend_on_how_samples_are_spread(policy, objective, data):
    """B7, A8. Any split into micro-steps and cells, in any order, with forwards of any size: the same sum to floating-point noise."""
    config = TrainerConfig(objective=objective, clip_low=0.2, clip_high=0.2)
    samples = [
        [make_row(f"g000000-e{index}-a1", 10 * index + part, 8 + 5 * index, part) for part in range(index % 3 + 1)]
        for index in range(5)
    ]
    whole_P, seen = gradient_of(policy, [[[row for rows in samples for row in rows]]], config)
    places = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=5, max_size=5))
    cells: dict[int, dict[int, list[Row]]] = {}
    for rows, (cell, piece) in zip(data.draw(st.permutations(samples)), places, strict=True):
        cells.setdefault(cell, {}).setdefault(piece, []).extend(data.draw(st.permutations(rows)))
    small = msgspec.structs.replace(config, forward_tokens_max=data.draw(st.integers(8, 60)))
    spread_P, seen_too = gradient_of(policy, [list(pieces.values()) for pieces in cells.values()], small)
    assert (whole_P - spread_P).norm() < 1e-5 * whole_P.norm()
    assert seen_too == pytest.approx(seen, rel=1e-4, abs=1e-5)


def with_advantage(row: Row, advantage: float) -> Row:
    return msgspec.structs.replace(row, advantages=pack(np.full(row.targets.sum(), advantage), "float32"))


def test_without_advantage_nothing_moves_and_with_it_something_does(model_directory):
    """B7. The gradient path: exactly zero in, exactly zero out; else every kind of weight gets a gradient."""
    policy = Policy(model_directory)
    accumulate(policy, micro([with_advantage(make_row("a", 1), 0.0)]), CONFIG)
    assert not flat_gradient(policy.parameters).any()
    accumulate(policy, micro([with_advantage(make_row("a", 1), 1.0)]), CONFIG)
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in policy.parameters)


@pytest.mark.parametrize("objective", ["cispo", "grpo", "gspo"])
def test_a_rewarded_token_becomes_likelier(model_directory, objective):
    """D1. A bandit: after the prompt 1 2 3, token 7 pays +1 and token 9 pays −1; a few on-policy steps tell them apart."""
    policy = Policy(model_directory)
    optimizer = Optimizer(policy.parameters, CONFIG)

    def row(token: int, advantage: float = 0.0, logprob: float = 0.0) -> Row:
        return Row(
            sample_id=f"x{token}", part=0, tokens=pack([1, 2, 3, token], "int32"), run_lengths=pack([4], "int32"),
            run_parents=pack([-1], "int32"), sequences=pack([-1, -1, -1, 0], "int32"),
            logprobs=pack([logprob], "float32"), versions=pack([0], "int32"),
            advantages=pack([advantage], "float32"), temperatures=pack([1.0], "float32"),
        )  # fmt: skip

    def logprob(token: int) -> float:
        with torch.no_grad():
            return policy.target_logprobs(forest_of([row(token)])).item()

    good, bad = logprob(7), logprob(9)
    for step in range(5):
        rows = [row(7, 1.0, logprob(7)), row(9, -1.0, logprob(9))]
        accumulate(policy, micro(rows), TrainerConfig(objective=objective, lr=1e-2))
        optimizer.step(flat_gradient(policy.parameters), 2, step)
    assert logprob(7) > good + 0.5 and logprob(9) < bad - 0.5


def test_the_divisor_is_applied_before_the_clip(model_directory):
    """B7. A gradient of norm 10 over 100 executions has norm .1 and is not clipped; AdamW sees g/100."""
    policy = Policy(model_directory)
    optimizer = Optimizer(policy.parameters, CONFIG)
    gradient_P = torch.ones_like(flat_gradient(policy.parameters))
    gradient_P *= 10 / gradient_P.norm()
    assert optimizer.step(gradient_P, 100, 0)["grad_norm"] == pytest.approx(0.1, rel=1e-4)


def test_a_gradient_that_is_not_finite_is_never_applied(model_directory):
    """A2. Such weights would be published."""
    policy = Policy(model_directory)
    before = {name: tensor.clone() for name, tensor in policy.tensors().items()}
    with pytest.raises(InvariantBroken):
        Optimizer(policy.parameters, CONFIG).step(torch.full_like(flat_gradient(policy.parameters), float("nan")), 1, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.tensors().items())


def test_rows_that_contradict_themselves_are_refused():
    """B1, B6, B8."""
    row = make_row("a", 1, 10)
    targets = int(row.targets.sum())
    check_row(row, VOCAB, 0)
    check_row(msgspec.structs.replace(row, **runs([4, 3, 2, 1], [-1, 0, 1, 0])), VOCAB, 0)
    wrong = {
        "a first token is a target": {"sequences": pack(np.where(np.arange(10) < targets, 0, -1), "int32")},
        "unknown token": {"tokens": pack(np.full(10, VOCAB), "int32")},
        "log-probability": {"logprobs": pack(np.full(targets, np.nan), "float32")},
        "length": {"advantages": pack(np.zeros(targets + 1), "float32")},
        "sequences": {"sequences": pack(np.zeros(9), "int32")},
        "temperature": {"temperatures": pack(np.zeros(targets), "float32")},
        "runs are shorter than the row": runs([4, 3, 2], [-1, 0, 1]),
        "an empty run": runs([4, 0, 6], [-1, 0, 1]),
        "a run before its parent": runs([4, 6], [1, -1]),
        "not depth-first: the third hangs from the first, the fourth from the second": runs(
            [4, 3, 2, 1], [-1, 0, 0, 1]
        ),
        "a parent for each run": runs([4, 6], [-1]),
    }
    for fields in wrong.values():
        with pytest.raises(InvalidInput):
            check_row(msgspec.structs.replace(row, **fields), VOCAB, 0)


def runs(lengths: list[int], parents: list[int]) -> dict[str, bytes]:
    return {"run_lengths": pack(lengths, "int32"), "run_parents": pack(parents, "int32")}


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_directory_without_its_parts_is_named(model_directory, tmp_path, missing):
    """A2. The message says which part is missing."""
    for path in model_directory.iterdir():
        if path.name != missing:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ConfigError, match=r"has no (a configuration|weights|a tokenizer)"):
        Policy(tmp_path)


def test_forwards_hold_whole_samples_and_only_a_large_one_takes_several():
    """B8. Budget 20: [9] and [8] share, [30] is one row and stays whole, [12 + 12] is over and takes two forwards of its own, [3 + 5] is whole."""
    samples = [
        [make_row(f"x{i}", i, length) for length in lengths]
        for i, lengths in enumerate([[9], [30], [12, 12], [3, 5], [8]])
    ]
    jobs = plan_forwards(samples, 20)
    assert [[[row.length for row in rows] for rows in job] for job in jobs] == [
        [[9, 3, 5]], [[30]], [[8]], [[12], [12]],
    ]  # fmt: skip


def test_the_learning_rate_rises_linearly():
    """D11. Warm-up over 4 steps reaches the rate at the fourth."""
    assert [learning_rate(step, 1.0, 4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_the_learning_rate_falls_linearly_to_its_final_share():
    """Five steps without warm-up from 1 to 0.2: a fifth less each, and no lower when a run is prolonged."""
    rates = [learning_rate(step, 1.0, 0, steps=5, final_share=0.2) for step in range(7)]
    assert rates == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])
