"""Packed equals path by path, and nothing depends on how samples were cut and spread (B7, B8)."""

from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre.config import TrainerConfig
from gyre.records import CallRecorded, Row, array, pack
from services.trainer.gradient import accumulate
from services.trainer.losses import OBJECTIVES
from services.trainer.losses.metrics import add_up
from services.trainer.model import Policy
from services.trajproc.core.rows import make_rows
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree
from tests.unit.trainer.packing_cases import PACKED, gradient_error, make_model, micro_of, near, random_tree

RECORDED = Path(__file__).parents[2] / "data" / "repair_calls.jsonl"
RECORDED_STEP = 20
"""The recorded executions are of a run's twentieth version."""
NORMS = {"execution": 0, "token": 0, "sequence": 0, "constant": 50}


@pytest.fixture(scope="module")
def policies(tmp_path_factory) -> tuple[Policy, Policy]:
    """The same Qwen3 packed and path by path (transformers' own SDPA)."""
    folder = make_model(tmp_path_factory.mktemp("packed"), "qwen3", PACKED["qwen3"] | {"vocab_size": 1024})
    packed, plain = Policy(folder), Policy(folder)
    plain.not_packed = "to compare"
    plain.model.set_attn_implementation("sdpa")
    return packed, plain


def gradient(
    policy: Policy, micros: list[list[Row]], config: TrainerConfig
) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Each parameter's gradient of all the micro-steps, and the sums seen."""
    policy.model.zero_grad(set_to_none=True)
    sums = [seen.sums for rows in micros for seen in accumulate(policy, micro_of(rows, RECORDED_STEP), config).values()]
    return [parameter.grad for parameter in policy.parameters], add_up(sums)


def assert_same(found, expected) -> None:
    assert sum(gradient.abs().sum() for gradient in expected[0]) > 0, "all targets are left out: nothing is compared"
    assert gradient_error(found[0], expected[0]) < 1e-5
    assert found[1] == pytest.approx(expected[1], rel=1e-4, abs=1e-4)


def config_of(objective: str, norm: str = "execution", **settings) -> TrainerConfig:
    return TrainerConfig(
        objective=objective, norm=norm, norm_constant=NORMS[norm], clip_low=0.1, clip_high=0.1, veto_ratio=0.8, **settings
    )  # fmt: skip


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_packed_equals_path_by_path_on_random_trees(policies, objective):
    """B8. Log-probabilities, loss (in the sums) and every parameter's gradient within 1e-5; 34 trees for each of six objectives are 200."""
    for number in range(34):
        rng = np.random.default_rng(1000 * sorted(OBJECTIVES).index(objective) + number)
        rows = [random_tree(rng, int(rng.integers(1, 9)), int(rng.integers(1, 12)), f"x{index}") for index in range(2)]
        rows, config = near(policies[0], rows, number), config_of(objective)
        assert_same(gradient(policies[0], [rows], config), gradient(policies[1], [rows], config))


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_packed_equals_path_by_path_with_every_objective_and_norm(policies, objective, norm):
    """B8. 200 trees each."""
    for number in range(200):
        rng = np.random.default_rng(number)
        trees = [random_tree(rng, int(rng.integers(2, 9)), int(rng.integers(3, 12)), f"x{index}") for index in range(2)]
        rows, config = near(policies[0], trees, number), config_of(objective, norm)
        assert_same(gradient(policies[0], [rows], config), gradient(policies[1], [rows], config))


def recorded_executions() -> list[list[CallRecorded]]:
    """Calls of each execution of real runs (tests/data/README.md)."""
    by_execution: dict[str, list[CallRecorded]] = {}
    for line in RECORDED.read_bytes().splitlines():
        call = msgspec.json.decode(line, type=CallRecorded)
        by_execution.setdefault(call.execution_id, []).append(call)
    return list(by_execution.values())


def as_one_execution(executions: list[list[CallRecorded]]) -> list[CallRecorded]:
    """What the members of a group did, as if one execution had tried it several times over: they share the task's prompt and part there."""
    sample, joined = ids.sample_id("g000000-e0", 1), []
    for calls in executions:
        first = len(joined)
        for call in calls:
            joined.append(
                msgspec.structs.replace(
                    call, execution_id="g000000-e0", group_id="g000000", attempt=1, call_index=first + call.call_index,
                    call_id=ids.call_id(sample, first + call.call_index),
                    parent=call.parent and ids.call_id(sample, first + call.call_index - 1),
                )
            )  # fmt: skip
    return joined


def rows_of(calls: list[CallRecorded], sample: str, tokens_max: int = 8192) -> list[Row]:
    tree = build_tree(calls)
    assert not tree.set_aside
    return make_rows(tree, choose_paths(tree, sample, 5), sample, np.linspace(-1, 1, len(tree.calls)), tokens_max)


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_packed_equals_path_by_path_on_recorded_executions(policies, objective):
    """B8. Two groups of four executions of the repair job: two of them as they are (chains), and each group joined at its prompt (trees)."""
    executions = recorded_executions()
    rows = [row for index in (0, 5) for row in rows_of(executions[index], f"g00000{index}-e0-a1")]
    rows += rows_of(as_one_execution(executions[:4]), "g000006-e0-a1")
    rows += rows_of(as_one_execution(executions[4:]), "g000007-e0-a1")
    assert any(row.runs > 3 for row in rows)
    rows, config = near(policies[0], rows, 0), config_of(objective)
    assert_same(gradient(policies[0], [rows], config), gradient(policies[1], [rows], config))


@pytest.fixture(scope="module")
def near_records(policies) -> list[list[CallRecorded]]:
    """Three executions, two of them trees of about 15 calls, with log-probabilities of a policy close to this one."""
    executions = recorded_executions()
    found = []
    joined = [as_one_execution(executions[:2]), as_one_execution(executions[4:6]), executions[6]]
    for number, calls in enumerate(joined):
        (row,) = near(policies[0], rows_of(calls, "g000000-e0-a1"), number)
        logprobs, calls_K = array(row.logprobs, "float32"), array(row.sequences, "int32")[row.targets]
        # a token that two calls share is the first's; the second's own value is never read
        by_call = {index: logprobs[calls_K == index] for index in range(len(calls))}
        found.append([
            msgspec.structs.replace(call, logprobs=pack(by_call[index], "float32"))
            if len(by_call[index]) * 4 == len(call.logprobs) else call
            for index, call in enumerate(build_tree(calls).calls)
        ])  # fmt: skip
    return found


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    st.sampled_from(sorted(OBJECTIVES)), st.sampled_from(sorted(NORMS)), st.integers(100, 1000), st.integers(100, 1000),
    st.lists(st.integers(0, 2), min_size=3, max_size=3), st.permutations(range(3)), st.integers(0, 999),
)  # fmt: skip
def test_cuts_micro_steps_cells_and_order_do_not_change_loss_or_gradient(
    policies, near_records, objective, norm, row_tokens, forward_tokens, cells, order, seed
):
    """B7, B8. Rows and forwards of at most 100 … 1000 tokens, samples on three cells in any order, records in any order of arrival."""
    names, random = [f"g00000{index}-e0-a1" for index in range(3)], Random(seed)
    whole = [row for name, records in zip(names, near_records, strict=True) for row in rows_of(records, name)]
    expected = gradient(policies[0], [whole], config_of(objective, norm))
    spread: list[list[Row]] = [[], [], []]
    for index in order:
        rows = rows_of(random.sample(near_records[index], len(near_records[index])), names[index], row_tokens)
        spread[cells[index]] += random.sample(rows, len(rows))
    config = config_of(objective, norm, forward_tokens_max=forward_tokens)
    found = gradient(policies[0], [rows for rows in spread if rows], config)
    for sums in (found[1], expected[1]):
        del sums["tokens"], sums["rows"]  # a cut computes its prefix again
    assert_same(found, expected)
