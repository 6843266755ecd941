"""The processor as a process on a real nats-server: samples, micro-steps, a closed batch; killed in the middle, nothing twice."""

import pytest

from gyre import ids
from gyre import records as r
from gyre.api.trajproc.v1 import trajproc_pb2 as pb
from gyre.api.trajproc.v1 import trajproc_pb2_grpc
from gyre.bus import work
from gyre.bus.subjects import natural_key
from gyre.rpc.channel import open_channel
from tests.integration.trajproc.others import watching
from tests.support import TestRun
from tests.unit.trajproc.builders import dispatched, execution, opened, started, submitted

SETTINGS = {"trajproc": {"turns_per_step": 8, "milestone_share": 0.0, "micro_tokens": 24, "wait_s": 1e12}}


@pytest.mark.parametrize("snapshot_facts", [50_000, 1], ids=["from the facts", "from a snapshot"])
async def test_samples_become_micro_steps_and_a_closed_batch_through_kill_nine(tmp_path, snapshot_facts):
    """B3–B7, C5: four groups of two executions with two calls each make two batches of 8 turns; the process is killed twice (kill -9):
    with half a batch taken, and while facts arrive. Each fact is said once, each micro-step is in one batch."""
    groups = [ids.group_id(index) for index in range(4)]
    trajproc = {**SETTINGS["trajproc"], "snapshot_facts": snapshot_facts}
    async with TestRun(tmp_path, {"trajproc": trajproc}) as run, watching(run) as others:
        process = await run.start("services.trajproc", endpoint="trajproc")
        await others.say(started(), *map(submitted, groups), *(dispatched(group, 2) for group in groups), opened(0))
        await others.say(*execution(groups[0], 0, 1.0, turns=2), *execution(groups[0], 1, 0.0, turns=2))
        await others.until(lambda: others.of(r.BatchExtended, group_id=groups[0]))
        await others.say(*execution(groups[1], 0, 1.0, turns=2))
        if snapshot_facts == 1:
            await run.until(lambda: list(run.folder.snapshots.glob("trajproc-*.snapshot")))

        process.kill()
        await process.wait()
        await others.say(*execution(groups[1], 1, 0.0, turns=2))
        assert not others.closed(), "nobody could know of its last execution"
        process = await run.start("services.trajproc", endpoint="trajproc")
        await others.until(others.closed)
        first = others.closed()[0]
        assert (first.cause, first.turns, first.groups) == ("turns", 8, groups[:2])

        await others.say(opened(1), *execution(groups[2], 0, 1.0, turns=2), *execution(groups[2], 1, 0.0, turns=2))
        process.kill()
        await process.wait()
        await others.say(
            *execution(groups[3], 0, None, turns=2, ending="failed"), *execution(groups[3], 1, 1.0, turns=2)
        )
        process = await run.start("services.trajproc", endpoint="trajproc")
        await others.until(lambda: len(others.closed()) == 2)
        second = others.closed()[1]
        assert (second.cause, second.turns, second.groups, second.staleness_max) == ("exhausted", 6, groups[2:], 1)

        channel = open_channel(run.folder.endpoint("trajproc"), run.service_key)
        stub = trajproc_pb2_grpc.TrajprocServiceStub(channel)

        async def closed_state() -> pb.GetStateResponse | None:
            """What it says is on the bus a moment before it counts it itself."""
            state = await stub.GetState(pb.GetStateRequest(), wait_for_ready=True, timeout=60)
            return None if state.batch_open else state

        state = await run.until(closed_state)
        await channel.close()
        assert dict(state.dropped) == {"environment_failed": 1, "no_gradient": 1}
        assert (state.ready_groups, state.unfinished_groups, state.step) == (0, 0, 1)

        listed = [*first.micro_ids, *second.micro_ids]
        await others.all_micros(listed)
        process.terminate()
        assert await process.wait() == 0
        log = (run.folder.logs / "services.trajproc.log").read_text()
        assert ("from a snapshot at" in log) == (snapshot_facts == 1)

    keys = [natural_key(fact) for fact in others.facts]
    assert len(keys) == len(set(keys)), "nothing is said twice"
    assert sorted(micro.micro_id for micro in others.micros) == sorted(listed), "each micro-step was sent once"
    trained = sorted(row.sample_id for micro in others.micros for row in micro.rows if row.targets.any())
    assert trained == [f"{group}-e{member}-a1" for group in groups[:3] for member in (0, 1)], "each sample once, whole"


async def test_a_row_larger_than_the_bus_takes_goes_through_the_blob_store(tmp_path):
    """E: 150,000 tokens, 8 bytes each and more, are over 1 MB as a row; the micro-step names the blob that holds it."""
    from gyre.bus import BlobStore
    from services.trajproc.bus import publish
    from services.trajproc.core.build import build_sample
    from services.trajproc.core.state import Group, Verdict
    from services.trajproc.core.tree import Known
    from tests.unit.trajproc.builders import call, config, ended

    group = Group("g000000", ["g000000-e0"], members={})
    group.member("g000000-e0").add(call(list(range(1, 150_000)), [7]), Known())
    rows = build_sample(group, Verdict("g000000-e0-a1", ended("g000000", 0), ""), config(), 0.0).rows
    async with TestRun(tmp_path, SETTINGS) as run:
        blobs = BlobStore(run.folder.blobs)
        micro = r.MicroStep(
            micro_id="s000000-g000000-m0", step=0, group_id="g000000", rows=rows, tokens=150_000, at_s=0.0
        )
        await publish(await run.bus("trajproc"), blobs, micro)
        queue = work.micros(await run.bus("trainer"), ack_wait_s=600)
        delivery = await run.until(lambda: queue.next(wait_s=1.0))
        assert delivery.record.rows == [] and r.decode_rows(blobs.get(delivery.record.blob)) == rows
