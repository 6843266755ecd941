"""Real processes on a real bus: a core and two satellites train a tiny policy; what they train is what one process would."""

import asyncio

import msgspec
import safetensors.torch
import torch

from gyre.errors import EXIT_GAVE_UP
from gyre.records import (
    AlarmRaised,
    MicroStep,
    RoleChanged,
    StepJoined,
    StepOpened,
    StepUpdated,
    WeightsPublished,
    pack,
)
from tests.integration.trainer.trainer_helpers import (
    Run,
    assert_same,
    make_group,
    reference,
    samples_of,
    start_all,
    two_satellites_in_training,
)
from tests.support import WAIT_S

torch.set_num_threads(1)


async def test_a_core_and_two_satellites_give_the_weights_of_one_process(tmp_path):
    """A2, A7, A8, B7: streaming, join in mid-batch, two steps, one publish, each sample once."""
    async with Run(tmp_path / "run") as run:
        await start_all(run, 3)
        first = [micro for index in range(4) for micro in make_group(0, index)]
        second = [micro for index in range(4, 8) for micro in make_group(1, index)]
        expected = reference(run, tmp_path / "reference", [first, second])

        await run.role(0, "training")
        await run.until(lambda: run.of(StepOpened, step=0))
        await run.extend(0, 0, first[:2])
        await run.until_computed(2)  # by the core alone
        await run.role(1, "training")
        await run.role(2, "training")
        await run.until(lambda: {fact.cell for fact in run.of(StepJoined, step=0)} == {"cell-1", "cell-2"})
        for index in range(1, 4):
            await run.extend(0, index, first[2 * index : 2 * index + 2])
        await run.close(0, first)
        updated = (await run.until(lambda: run.of(StepUpdated, step=0)))[0]
        assert all(joined.mid_batch for joined in run.of(StepJoined, step=0))
        assert sorted(updated.sample_ids) == samples_of(first)
        assert sorted(updated.micro_cells) == sorted(micro.micro_id for micro in first)
        assert updated.metrics["targets"] == sum(row.targets.sum() for micro in first for row in micro.rows)

        await run.until(lambda: run.of(StepOpened, step=1))
        for index in range(4, 8):
            await run.extend(1, index, second[2 * (index - 4) : 2 * (index - 4) + 2])
        await run.close(1, second)
        published = (await run.until(lambda: run.of(WeightsPublished, version=2)))[0]
        assert_same(published.path, expected[1])
        assert len(run.of(StepUpdated)) == 2

        await run.role(2, "rollout")
        await run.role(1, "rollout")
        await run.role(0, "rollout")
        await run.until_no_claims()


def poisoned(micro: MicroStep) -> MicroStep:
    """An advantage of 1e30."""
    row = micro.rows[0]
    return msgspec.structs.replace(
        micro, rows=[msgspec.structs.replace(row, advantages=pack([1e30] * int(row.targets.sum()), "float32"))]
    )


async def test_samples_that_cannot_be_trained_are_set_aside_and_the_cells_go_on(tmp_path):
    """B1, A8: of twelve samples over three cells four are impossible (advantages beyond reason, a token that the model does not have, rows that are
    lost): the update is that of the other eight, the fact names the four with their reasons, and the next step is trained by the same processes."""
    async with Run(tmp_path / "run") as run:
        await two_satellites_in_training(run)
        micros = [micro for index in range(6) for micro in make_group(0, index)]
        sound = [micro for place, micro in enumerate(micros) if place not in (1, 4, 5, 8)]
        expected = reference(run, tmp_path / "reference", [sound])
        micros[1], micros[4] = poisoned(micros[1]), poisoned(micros[4])
        strange = msgspec.structs.replace(micros[5].rows[0], tokens=pack([-1] * micros[5].rows[0].length, "int32"))
        micros[5] = msgspec.structs.replace(micros[5], rows=[strange])
        all_samples = samples_of(micros)
        gone = samples_of([micros[8]])
        micros[8] = msgspec.structs.replace(micros[8], rows=[], blob="0" * 64, sample_ids=gone)
        for index in range(6):
            await run.extend(0, index, micros[2 * index : 2 * index + 2])
        await run.close(0, micros, all_samples)
        updated = (await run.until(lambda: run.of(StepUpdated, step=0)))[0]
        assert sorted(updated.sample_ids) == samples_of(sound)
        assert sorted([*updated.sample_ids, *updated.set_aside]) == all_samples and all(updated.set_aside.values())
        assert "advantage" in updated.set_aside[samples_of([micros[1]])[0]] and "no blob" in updated.set_aside[gone[0]]
        assert updated.metrics["divisor"] == 8 and updated.metrics["set_aside"] == 4
        assert_same(run.folder.checkpoints / "v000001" / "weights.safetensors", expected[0])
        await run.until(lambda: [alarm.kind for alarm in run.of(AlarmRaised)] == ["untrainable"])
        await run.until(lambda: run.of(StepOpened, step=1))
        await run.extend(1, 6, more := make_group(1, 6))
        await run.close(1, more)
        await run.until(lambda: run.of(StepUpdated, step=1))
        assert all(trainer.returncode is None for trainer in run.trainers.values()), "no process ended"


async def test_a_core_that_loses_batch_after_batch_gives_up(tmp_path):
    """Three steps in a row of which nothing can be trained: the third is not updated, and the process says so with the code that ends the run."""
    async with Run(tmp_path / "run", cells=1) as run:
        await run.start_trainer(0)
        await run.burst(2)
        await run.role(0, "rollout")
        await run.role(0, "training")
        for step in range(3):
            await run.until(lambda step=step: run.of(StepOpened, step=step))
            micros = [poisoned(micro) for micro in make_group(step, step)]
            await run.extend(step, step, micros)
            await run.close(step, micros)
        assert await asyncio.wait_for(run.trainers[0].wait(), WAIT_S) == EXIT_GAVE_UP
        assert [fact.step for fact in run.of(StepUpdated)] == [0, 1] and not run.of(StepUpdated)[1].sample_ids
        said = next((run.folder.logs).glob("services.trainer*0.log")).read_text().splitlines()[-1]
        assert "nothing could be trained in 3 steps in a row" in said and "version 2" in said


async def test_cells_that_are_asked_back_in_mid_step_lose_nothing(tmp_path):
    """A9: all at once, in the middle of a burst and of its step; nothing is published, and what they had computed is not computed again."""
    async with Run(tmp_path / "run", claim_s=6.0) as run:
        await two_satellites_in_training(run)
        micros = [micro for index in range(6) for micro in make_group(0, index)]
        expected = reference(run, tmp_path / "reference", [micros])
        for index in range(5):
            await run.extend(0, index, micros[2 * index : 2 * index + 2])
        await run.until_computed(10)
        await asyncio.gather(*(run.role(cell, "rollout") for cell in range(3)))
        await run.extend(0, 5, micros[10:])
        await run.close(0, micros)
        await asyncio.sleep(0.4)
        assert not run.of(StepUpdated, step=0), "the core serves"
        await run.role(0, "training")
        updated = (await run.until(lambda: run.of(StepUpdated, step=0)))[0]
        assert sorted(updated.micro_cells) == sorted(micro.micro_id for micro in micros)
        assert set(updated.micro_cells.values()) == {"cell-0", "cell-1", "cell-2"}, "the core holds their gradients"
        assert_same(run.folder.checkpoints / "v000001" / "weights.safetensors", expected[0])
        assert not run.of(WeightsPublished)
        await run.close(1, [], samples=["g000009-e0-a1"])
        await run.until(lambda: run.of(WeightsPublished, version=2))
        await run.burst(2, core_stays=True)
        await run.until_no_claims()  # what the satellites gave back is discarded by whoever trains next


async def test_cells_that_always_train_begin_without_a_rollout_process(tmp_path):
    """A9, async: change 0 is training; drained and unloaded are nobody's to say."""
    split = {"mode": "async", "training_cells": 2, "standalone_cells": 1}
    async with Run(tmp_path / "run", scheduler=split) as run:
        await asyncio.gather(run.start_trainer(0), run.start_trainer(1))
        await asyncio.gather(run.role(0, "training"), run.role(1, "training"))
        await run.until(lambda: run.of(StepJoined, step=0, cell="cell-1"))
        # A boundary later they are still there, though its burst does not say that the core stays.
        for step in range(4):
            if step == 2:
                await run.until(lambda: run.of(WeightsPublished, version=2))
                await run.burst(2)
            await run.until(lambda step=step: run.of(StepOpened, step=step))
            micros = make_group(step, step)
            await run.extend(step, step, micros)
            await run.close(step, micros)
        await run.until(lambda: run.of(WeightsPublished, version=4))
        assert {fact.phase for fact in run.of(RoleChanged)} == {"requested", "training"}


async def test_a_batch_without_gradient_counts_and_moves_nothing(tmp_path):
    """C10: the version advances, the weights do not, AdamW's momentum included; then the core goes back and forth at the boundary."""
    async with Run(tmp_path / "run", cells=1) as run:
        await run.start_trainer(0)
        await run.role(0, "rollout")
        await run.role(0, "training")
        await run.until(lambda: run.of(StepOpened, step=0))
        micros = make_group(0, 0)
        await run.extend(0, 0, micros)
        await run.close(0, micros)
        await run.until(lambda: run.of(StepOpened, step=1))
        await run.close(1, [], samples=["g000001-e0-a1", "g000001-e1-a1"])
        updated = (await run.until(lambda: run.of(StepUpdated, step=1)))[0]
        assert updated.metrics["no_gradient"] == 1.0
        before = safetensors.torch.load_file(run.folder.checkpoints / "v000001" / "weights.safetensors")
        published = (await run.until(lambda: run.of(WeightsPublished, version=2)))[0]
        assert_same(published.path, before)

        # After the publish the core waits for the next boundary's word, and opens no step in a burst that does not keep it.
        await asyncio.sleep(0.4)
        assert not run.of(StepOpened, step=2)
        await run.burst(2, steps=1)
        await asyncio.sleep(0.4)
        assert not run.of(StepOpened, step=2)
        await run.role(0, "rollout")
        await run.role(0, "training")
        await run.until(lambda: run.of(StepOpened, step=2))
        await run.close(2, [], samples=["g000002-e0-a1"])
        await run.until(lambda: run.of(WeightsPublished, version=3))  # bursts differ in length
        await run.burst(3, core_stays=True)
        await run.until(lambda: run.of(StepOpened, step=3, burst=2))
        assert len(run.of(RoleChanged, phase="released")) == 2
        run.trainers[0].terminate()
        assert await run.trainers[0].wait() == 0
