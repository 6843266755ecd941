"""Real processes on a real bus: a core and its satellites die at every point of a step; that loses nothing and counts nothing twice."""

import asyncio
import signal

import torch

from gyre.clock import SystemClock
from gyre.records import (
    StepJoined,
    StepOpened,
    StepUpdated,
    WeightsPublished,
)
from services.trainer.core.events import Batch
from services.trainer.learner import Learner
from services.trainer.model import Policy
from services.trainer.optimizer import flat_gradient
from tests.integration.trainer.trainer_helpers import (
    Run,
    assert_same,
    make_group,
    reference,
    samples_of,
    start_all,
    two_satellites_in_training,
)

torch.set_num_threads(1)


async def test_a_satellite_killed_in_mid_step_loses_nothing(tmp_path):
    """A8: what it had computed is computed again by others, and counts once."""
    async with Run(tmp_path / "run") as run:
        await two_satellites_in_training(run)
        micros = [micro for index in range(6) for micro in make_group(0, index)]
        expected = reference(run, tmp_path / "reference", [micros])
        for index in range(5):
            await run.extend(0, index, micros[2 * index : 2 * index + 2])
        await run.until_computed(10)  # ten micro-steps over three cells: each has computed some, and they wait for more
        run.trainers[2].send_signal(signal.SIGKILL)
        await run.extend(0, 5, micros[10:])
        await run.close(0, micros)
        updated = (await run.until(lambda: run.of(StepUpdated, step=0)))[0]
        assert set(updated.micro_cells) == {micro.micro_id for micro in micros}
        assert "cell-2" not in updated.micro_cells.values()
        assert_same(run.folder.checkpoints / "v000001" / "weights.safetensors", expected[0])


async def test_a_satellite_killed_in_the_reduction_loses_nothing(tmp_path):
    """A8: the round fails at the others, they keep their gradients, and only the dead cell's micro-steps are computed again."""
    async with Run(tmp_path / "run") as run:
        await two_satellites_in_training(run)
        first = [micro for index in range(3) for micro in make_group(0, index)]
        second = [micro for index in range(3, 9) for micro in make_group(1, index)]
        expected = reference(run, tmp_path / "reference", [first, second])
        for index in range(3):
            await run.extend(0, index, first[2 * index : 2 * index + 2])
        await run.close(0, first)
        await run.until(lambda: run.of(StepUpdated, step=0))
        await run.until(lambda: run.of(StepOpened, step=1))
        for index in range(6):
            await run.extend(1, 3 + index, second[2 * index : 2 * index + 2])
        await run.until_computed(12)
        # Stopped, it cannot answer the reduction that begins now; then it is killed inside it.
        run.trainers[2].send_signal(signal.SIGSTOP)
        await run.close(1, second)
        await asyncio.sleep(0.3)
        run.trainers[2].send_signal(signal.SIGKILL)
        updated = (await run.until(lambda: run.of(StepUpdated, step=1)))[0]
        assert set(updated.micro_cells) == {micro.micro_id for micro in second}
        assert "cell-2" not in updated.micro_cells.values()
        published = (await run.until(lambda: run.of(WeightsPublished, version=2)))[0]
        assert_same(published.path, expected[1])


async def test_a_core_killed_while_its_step_is_parked_begins_the_step_anew(tmp_path):
    """A8, A9: the gradient that waited is gone, its claims come back, and each micro-step counts once."""
    async with Run(tmp_path / "run", cells=1) as run:
        await run.start_trainer(0)
        await run.role(0, "rollout")
        await run.role(0, "training")
        await run.until(lambda: run.of(StepOpened, step=0))
        micros = [micro for index in range(2) for micro in make_group(0, index)]
        expected = reference(run, tmp_path / "reference", [micros])
        await run.extend(0, 0, micros[:2])
        await run.until_computed(2)
        await run.role(0, "rollout")
        run.trainers[0].send_signal(signal.SIGKILL)
        await run.trainers[0].wait()
        await run.extend(0, 1, micros[2:])
        await run.close(0, micros)
        await run.start_trainer(0)
        await run.role(0, "training")
        updated = (await run.until(lambda: run.of(StepUpdated, step=0)))[0]
        assert sorted(updated.micro_cells) == sorted(micro.micro_id for micro in micros)
        assert_same(run.folder.checkpoints / "v000001" / "weights.safetensors", expected[0])


async def test_a_hung_satellite_is_taken_for_dead(tmp_path):
    """A8: silence for trainer.claim_s is a death; when it wakes up it drops its gradient, and nothing counts twice."""
    async with Run(tmp_path / "run", cells=2) as run:
        await start_all(run, 2)
        await run.role(0, "training")
        await run.role(1, "training")
        await run.until(lambda: run.of(StepJoined, step=0))
        micros = [micro for index in range(3) for micro in make_group(0, index)]
        expected = reference(run, tmp_path / "reference", [micros])
        for index in range(3):
            await run.extend(0, index, micros[2 * index : 2 * index + 2])
        await run.until_computed(6)
        run.trainers[1].send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.1)
        await run.close(0, micros)
        updated = (await run.until(lambda: run.of(StepUpdated, step=0)))[0]
        run.trainers[1].send_signal(signal.SIGCONT)
        assert set(updated.micro_cells) == {micro.micro_id for micro in micros}
        assert_same(run.folder.checkpoints / "v000001" / "weights.safetensors", expected[0])
        # It is back in the next step.
        await run.until(lambda: run.of(StepJoined, step=1) or run.of(StepJoined, step=0)[1:])


async def test_a_killed_core_goes_on_from_its_checkpoint(tmp_path):
    """A2, A8: killed between two steps and in the middle of one; each sample is trained once, and the weights are those of one process."""
    async with Run(tmp_path / "run", cells=2) as run:
        await start_all(run, 2)
        await run.role(0, "training")
        await run.role(1, "training")
        await run.until(lambda: run.of(StepJoined, step=0))
        first = [micro for index in range(3) for micro in make_group(0, index)]
        second = [micro for index in range(3, 6) for micro in make_group(1, index)]
        expected = reference(run, tmp_path / "reference", [first, second])
        for index in range(3):
            await run.extend(0, index, first[2 * index : 2 * index + 2])
        await run.close(0, first)
        await run.until(lambda: run.of(StepOpened, step=1))
        await run.extend(1, 3, second[:2])
        await run.extend(1, 4, second[2:4])
        await run.until_computed(4)
        run.trainers[0].send_signal(signal.SIGKILL)
        await run.trainers[0].wait()
        await run.extend(1, 5, second[4:])
        await run.close(1, second)
        await run.start_trainer(0)
        updated = (await run.until(lambda: run.of(StepUpdated, step=1)))[0]
        assert sorted(updated.sample_ids) == samples_of(second)
        published = (await run.until(lambda: run.of(WeightsPublished, version=2)))[0]
        assert_same(published.path, expected[1])
        assert [fact.step for fact in run.of(StepUpdated)] == [0, 1]


async def test_facts_lost_in_a_crash_are_said_again(tmp_path):
    """A2: a crash between checkpoint and fact; the restarted core tells of the step and publishes, and trains nothing twice."""
    async with Run(tmp_path / "run", cells=1) as run:
        micros = make_group(0, 0) + make_group(0, 1)
        learner = Learner(run.folder, run.config, Policy(run.folder.model), SystemClock())
        batches = [Batch((f"s{step:06d}-g000000-m0",), ("g000000-e0-a1",), 1) for step in range(2)]
        for batch in batches:
            gradient_P = torch.ones_like(flat_gradient(learner._policy.parameters))
            learner.update(gradient_P, batch, {}, {}, {}, 0.0)
        # Steps 0 and 1 are on disk; of step 1 nothing was told, and a micro-step of step 0 is still on the queue.
        await run.trajproc.publish(micros[0])
        await run.start_trainer(0)
        await run.role(0, "rollout")
        await run.until(lambda: run.of(StepUpdated, step=1))
        await run.until(lambda: run.of(WeightsPublished, version=2))
        await run.burst(2)
        await run.role(0, "training")
        await run.until(lambda: run.of(StepOpened, step=2))
        await run.until_no_claims()  # a micro-step of a done step is discarded
