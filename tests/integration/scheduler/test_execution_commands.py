"""Commands to executions from the command line to the facts, over a kill of the scheduler (C2)."""

import asyncio
import json
import sys

from gyre import records as r
from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from tests.integration.scheduler.test_scheduler_service import a_task, cluster
from tests.support import ROOT
from tests.unit.scheduler import facts


async def gyre(run, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of `gyre arguments --run …`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gyre.cli.main", *arguments, "--run", str(run.folder.root), cwd=ROOT,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await asyncio.wait_for(child.communicate(), 240)
    return child.returncode, out.decode(), errors.decode()


async def test_commands_are_numbered_facts_that_a_restarted_scheduler_knows(tmp_path):
    """One running execution: suspended, killed, resumed, voided; what cannot be done is refused with what could."""
    async with cluster(tmp_path) as c:
        given = [a_task("held", purpose="evaluation"), a_task("waits")]
        await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=given))
        name = (await c.taken(2))[0].execution_id
        await c.tell(c.gateway, facts.leased(name), facts.running(name))
        await c.state_where(lambda s: s.executions_by_state.get("running") == 1)

        code, out, _ = await gyre(c.run, "executions", "suspend", name, "--reason", "look at it", "--json")
        assert code == 0 and json.loads(out)["commanded"] == [{"execution_id": name, "ordinal": 1, "state": "running"}]
        fact = await c.trajproc.newest(r.ExecutionCommanded, name)
        assert (fact.command, fact.ordinal, fact.reason, fact.group_id) == ("suspend", 1, "look at it", "g000000")
        said = r.ExecutionSuspended(execution_id=name, group_id="g000000", attempt=1, ordinal=1, at_s=1.0)
        await c.tell(c.gateway, said)
        assert (await c.state_where(lambda s: s.executions_by_state.get("suspended") == 1)).waterlevel == 2

        await c.kill()
        await c.start()
        code, out, errors = await gyre(c.run, "executions", "suspend", name)
        assert code == 2 and "can be resumed, voided or released" in errors
        code, out, errors = await gyre(c.run, "executions", "void", "--group", "g000000", "g000001")
        assert code == 2 and out.count("void") == 2 and "has not been dispatched" in errors
        assert (await c.trajproc.newest(r.ExecutionCommanded, name)).ordinal == 2
        code, _, errors = await gyre(c.run, "executions", "void", "g000000")
        assert code == 2 and "for a group add --group" in errors
        await c.tell(
            c.gateway, facts.ended(name, ending="voided", purpose="evaluation"),
            facts.ended("g000000-e1", ending="voided", purpose="evaluation"),
        )  # fmt: skip
        assert (await c.state_where(lambda s: s.finished == 2)).refused_transitions == {}
