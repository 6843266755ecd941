"""What changes, as streams and curves, from a real scheduler (A3, C1)."""

import asyncio
import json
import sys

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.scheduler.test_execution_commands import gyre
from tests.integration.scheduler.test_scheduler_service import a_task, cluster
from tests.support import ROOT, WAIT_S


async def test_waterlevel_and_roles_are_streamed_and_queues_are_told(tmp_path):
    """A reader first hears what is, then what changes; `gyre status --watch` says the same; a stopped scheduler ends it."""
    async with cluster(tmp_path) as c:
        await c.finish_role("cell-0", 0, "rollout")
        await c.state_where(lambda s: s.capacity == 8 and [one.phase for one in s.cells] == ["serving", "requested"])
        waterlevel = c.stub.WatchWaterlevel(pb.WatchWaterlevelRequest())
        first = await asyncio.wait_for(waterlevel.read(), WAIT_S)
        assert (first.waterlevel, first.lost) == (0, 0)
        roles = c.stub.WatchRoles(pb.WatchRolesRequest())
        known = [await asyncio.wait_for(roles.read(), WAIT_S) for _ in range(2)]
        assert [(one.cell, one.phase) for one in known] == [("cell-0", "serving"), ("cell-1", "requested")]

        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gyre.cli.main", "status", "--watch", "--json", "--run", str(c.run.folder.root), cwd=ROOT,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

        async def watched() -> dict:
            return json.loads(await asyncio.wait_for(child.stdout.readline(), WAIT_S))

        begun = [await watched() for _ in range(3)]
        assert sorted(one["kind"] for one in begun) == ["role", "role", "waterlevel"]

        given = [a_task("held", purpose="evaluation"), a_task("waits")]
        await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=given))
        async with asyncio.timeout(WAIT_S):
            while (await waterlevel.read()).waterlevel != 2:
                pass
        await c.finish_role("cell-1", 0, "rollout")
        phases = [(await asyncio.wait_for(roles.read(), WAIT_S)).phase for _ in range(3)]
        assert phases == ["released", "loaded", "serving"]
        while (await watched()).get("phase") != "serving":
            pass

        code, out, _ = await gyre(c.run, "queues", "--json")
        told = json.loads(out)
        assert code == 0 and (told["now"][0]["waiting_groups"], told["now"][0]["queue_max"]) == (1, 6)
        assert told["tiers"] == {}  # the ledger is not up in this test: its database is empty

        c.process.terminate()
        assert await asyncio.wait_for(c.process.wait(), WAIT_S) == 0
        _, errors = await asyncio.wait_for(child.communicate(), WAIT_S)
        assert child.returncode == 2 and b"Traceback" not in errors
