"""With the same seed and one cell, two runs train the same samples (docs/architecture.md, "Repeatability")."""

import asyncio
import contextlib
import hashlib
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gyre import records as r
from gyre.ids import sample_id
from tests.slow.support import Train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

STEPS = 8
ONE_CELL = {"run.steps": STEPS, "scheduler.cells": 1, "scheduler.order": "submitted", "tasks.wall_s": 900.0}
RUN_S = 1200.0


@dataclass(frozen=True)
class Sample:
    """What one execution gave, to the bit."""

    sample_id: str
    ending: str
    tokens: str
    """Digest of prompts and outputs of its calls."""
    logprobs: str
    versions: frozenset[int]
    reward: float
    advantage: float


@pytest.mark.asyncio
async def test_two_runs_of_one_seed_and_one_cell_train_the_same_samples(tmp_path: Path, model: Path):
    """Same step, same samples in the same order, same tokens, rewards and advantages (E); hence the same weights, to the bit."""
    first = await _run(tmp_path / "first", model)
    async with _one_core_less():  # other timing: other company in the engine's batches, other order of arrival
        second = await _run(tmp_path / "second", model)
    for step in range(STEPS):
        assert _batch(second, step).sample_ids == _batch(first, step).sample_ids, f"step {step} trains other samples"
        assert _consumed(second, step) == _consumed(first, step), f"step {step}"
    assert _weights(second) == _weights(first)
    assert _gradient_norms(second) == _gradient_norms(first)
    _check_that_it_says_something(first, second)


def _check_that_it_says_something(first: Train, second: Train) -> None:
    """The runs trained, on what trained weights had sampled, and did not happen to do everything in the same order."""
    trained = [name for step in range(STEPS) for name in _batch(first, step).sample_ids]
    assert len(trained) >= STEPS, "hardly any group has a gradient: the model is too weak for this test"
    sampled = frozenset().union(*(sample.versions for step in range(STEPS) for sample in _consumed(first, step)))
    assert max(sampled) > 0 and max(_gradient_norms(first)[2:]) > 0, "nothing was trained after the first publish"
    assert [call.call_id for call in second.of(r.CallRecorded)] != [call.call_id for call in first.of(r.CallRecorded)]


async def _run(root: Path, model: Path) -> Train:
    async with Train(root, model, ONE_CELL) as run:
        await run.until(lambda: len(run.of(r.StepUpdated)) == STEPS, RUN_S, f"{STEPS} steps")
        await run.finish(RUN_S)
    return run


@contextlib.asynccontextmanager
async def _one_core_less() -> AsyncIterator[None]:
    busy = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        yield
    finally:
        busy.kill()
        await busy.wait()


def _batch(run: Train, step: int) -> r.BatchClosed:
    (batch,) = [fact for fact in run.of(r.BatchClosed) if fact.step == step]
    return batch


def _consumed(run: Train, step: int) -> list[Sample]:
    """Every execution of the groups that the step's batch took, also those without gradient, in the batch's order of groups."""
    ready = {fact.sample_id: fact for fact in run.of(r.SampleReady)}
    calls: dict[str, list[r.CallRecorded]] = defaultdict(list)
    for call in run.of(r.CallRecorded):
        calls[sample_id(call.execution_id, call.attempt)].append(call)
    endings = sorted((fact for fact in run.of(r.ExecutionEnded)), key=lambda fact: fact.execution_id)
    samples = []
    for group in _batch(run, step).groups:
        for ending in (fact for fact in endings if fact.group_id == group):
            name = sample_id(ending.execution_id, ending.attempt)
            samples.append(_sample(ending, ready.get(name), sorted(calls[name], key=lambda call: call.call_index)))
    return samples


def _sample(ending: r.ExecutionEnded, ready: r.SampleReady | None, calls: list[r.CallRecorded]) -> Sample:
    versions = frozenset(version for call in calls for version in memoryview(call.versions).cast("i"))
    name = sample_id(ending.execution_id, ending.attempt)
    assert len(versions) <= 1, f"{name} was sampled under versions {versions}: one cell does not train while calls run"
    return Sample(
        name, f"{ending.ending} {ending.reason}",
        _digest(part for call in calls for part in (call.prompt_delta, call.output_ids)),
        _digest(call.logprobs for call in calls), versions,
        ready.reward if ready else 0.0, ready.advantage if ready else 0.0,
    )  # fmt: skip


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _weights(run: Train) -> list[str]:
    """Checksums of published weights, oldest first."""
    return [fact.checksum for fact in sorted(run.of(r.WeightsPublished), key=lambda fact: fact.version)]


def _gradient_norms(run: Train) -> list[float]:
    """By step; 0 for a batch without gradient."""
    return [fact.metrics.get("grad_norm", 0.0) for fact in sorted(run.of(r.StepUpdated), key=lambda fact: fact.step)]
