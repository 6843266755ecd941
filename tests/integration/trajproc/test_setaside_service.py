"""Broken call records through processor and ledger as processes: set aside, booked, shown by `gyre drops`; the rest is trained (B1)."""

import asyncio
import json
import subprocess
import sys

import msgspec

from gyre import ids
from gyre import records as r
from gyre.bus.subjects import natural_key
from gyre.records import array
from tests.integration.trajproc.others import watching
from tests.support import ROOT, TestRun
from tests.unit.trajproc.builders import call, dispatched, ended, execution, opened, started, submitted

SETTINGS = {"trajproc": {"turns_per_step": 6, "milestone_share": 0.0}}
GROUP = ids.group_id(0)
NAMES = [ids.execution_id(GROUP, member) for member in range(2)]


def asked(run: TestRun) -> dict:
    """`gyre drops --json`, answered from the books of a run whose ledger may be gone."""
    command = [sys.executable, "-m", "gyre.cli.main", "drops", "--run", str(run.folder.root), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


async def test_broken_records_are_set_aside_and_the_rest_of_their_execution_is_trained(tmp_path):
    """B1: of five calls of the first execution, call 1 has one log-probability too few, call 2 a version that nobody published, call 3 a parent in
    the other execution, call 4 hangs from call 1. Call 0 is trained: two target tokens. The processor is killed (kill -9) right after."""
    broken = [
        msgspec.structs.replace(call([6], [7, 8], index=1, parent=0, cut=5, execution=NAMES[0]), logprobs=r.pack([-0.1], "float32")),
        call([6], [7, 8], index=2, parent=0, cut=5, execution=NAMES[0], version=5),
        msgspec.structs.replace(call([6], [7, 8], index=3, parent=0, cut=5, execution=NAMES[0]), parent=f"{NAMES[1]}-a1-c0"),
        call([9], [10], index=4, parent=1, cut=8, execution=NAMES[0]),
    ]  # fmt: skip
    want = {"lengths": 1, "version_unknown": 1, "foreign_parent": 1, "orphan": 1}
    async with TestRun(tmp_path, SETTINGS) as run, watching(run) as others:
        await run.start("services.ledger", endpoint="ledger")
        process = await run.start("services.trajproc", endpoint="trajproc")
        await others.say(started(), submitted(GROUP), dispatched(GROUP, 2), opened(0))
        await others.say(call([1, 2, 3], [4, 5], execution=NAMES[0]), *broken, ended(GROUP, 0, 1.0, turns=5))
        await others.say(*execution(GROUP, 1, 0.0))
        await others.until(lambda: others.of(r.CallSetAside))
        process.kill()
        await process.wait()
        await run.start("services.trajproc", endpoint="trajproc")
        await others.until(lambda: others.closed() and len(others.of(r.CallSetAside)) == 4)
        await others.all_micros(others.closed()[0].micro_ids)
        found = {fact.call_id: fact.reason for fact in others.of(r.CallSetAside)}
        assert sorted(found.values()) == sorted(want)
        keys = [natural_key(fact) for fact in others.facts]
        assert len(keys) == len(set(keys)), "nothing is said twice"
        assert others.closed()[0].turns == 6, "what is set aside was played all the same"
        sampled = {row.sample_id: len(array(row.versions, "int32")) for micro in others.micros for row in micro.rows}
        assert sampled == {f"{NAMES[0]}-a1": 2, f"{NAMES[1]}-a1": 2}

        async def all_shown() -> dict | None:
            shown = (await asyncio.to_thread(asked, run))["set_aside"]
            return shown if shown["calls"] == 4 else None

        shown = await run.until(all_shown)
    assert {row["reason"]: row["calls"] for row in shown["reasons"]} == want and shown["tokens"] == 7
    assert {one["call_id"]: one["reason"] for one in shown["examples"]} == found
    assert all(one["detail"] for one in shown["examples"])
