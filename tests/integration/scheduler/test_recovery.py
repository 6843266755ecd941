"""Recovery from a snapshot and the facts after it, by real processes on a real bus."""

import asyncio

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.scheduler.test_scheduler_service import SETTINGS, a_task, cluster
from tests.support import WAIT_S
from tests.unit.scheduler import facts

EAGER = {"scheduler": {**SETTINGS["scheduler"], "snapshot_facts": 3, "tiers": [{"name": "all", "queue_max": 100}]}}


def log_of(run) -> str:
    return (run.folder.logs / "services.scheduler.log").read_text()


async def test_kill_9_a_snapshot_and_the_tail_give_the_same_state(tmp_path):
    """A3–A5: killed after a snapshot and more facts, killed with the snapshots damaged, and stopped cleanly: each time the same state."""
    async with cluster(tmp_path, EAGER) as c:
        for index in range(2):
            await c.finish_role(f"cell-{index}", 0, "rollout")
        await c.state_where(lambda s: s.capacity == 16)
        given = [a_task(f"t{index}") for index in range(8)]
        await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=given))
        await c.stub.StartTraining(pb.StartTrainingRequest(steps=3))
        first = await c.taken(6)
        await c.run.until(lambda: list(c.run.folder.snapshots.glob("*.snapshot")))
        for task in first[:3]:
            await c.finish(task)
        before = await c.settled(lambda s: s.executions_by_state.get("ready") == 3)

        await c.kill()
        await c.start()
        await c.state_where(lambda s: s == before)
        assert "from a snapshot at 0" not in log_of(c.run).splitlines()[-1]
        assert log_of(c.run).count("from a snapshot at 0") == 1  # the first start only

        await c.kill()
        for path in c.run.folder.snapshots.glob("*.snapshot"):
            path.write_bytes(path.read_bytes()[:-1] + b"?")
        await c.start()
        await c.state_where(lambda s: s == before)
        assert "it is damaged" in log_of(c.run) and log_of(c.run).count("from a snapshot at 0") == 2

        await c.finish(first[3])
        before = await c.state_where(lambda s: s.executions_by_state.get("ready") == 4)
        c.process.terminate()
        assert await asyncio.wait_for(c.process.wait(), WAIT_S) == 0
        await c.tell(c.gateway, facts.leased(first[4].execution_id))
        await c.start()
        state = await c.state_where(lambda s: s.executions_by_state.get("leased") == 1)
        assert (state.waterlevel, state.finished) == (before.waterlevel, before.finished)
        assert log_of(c.run).count("from a snapshot at 0") == 2
