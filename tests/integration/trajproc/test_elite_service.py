"""The elite store in the processor as a process: held over kill -9, files made again where they are lost (D9)."""

import shutil

import pytest

from gyre import ids
from gyre import records as r
from tests.integration.trajproc.others import watching
from tests.support import TestRun
from tests.unit.trajproc.builders import dispatched, execution, opened, started, submitted

SETTINGS = {"trajproc": {"turns_per_step": 4, "milestone_share": 0.0, "elite_share": 0.25}}
A, B = ids.group_id(0), ids.group_id(1)


def story(name: str) -> list:
    """Four executions of one turn; the first succeeds."""
    return [fact for member in range(4) for fact in execution(name, member, float(member == 0))]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_success_is_trained_again_beside_the_next_batch_over_a_kill(tmp_path, is_lost):
    """D9: batch 0 trains A, whose first member alone succeeded. The processor is killed (kill -9), once with its folder of rows lost, too: they are
    made again from the records, before batch 1 is closed, whose executions have all ended by then. Batch 1 is B's four executions and, a quarter of
    them, A's success, in a micro-step of its own."""
    async with TestRun(tmp_path, SETTINGS) as run, watching(run) as others:
        process = await run.start("services.trajproc", endpoint="trajproc")
        await others.say(started(), *map(submitted, (A, B)), *(dispatched(name, 4) for name in (A, B)), opened(0))
        await others.say(*story(A))
        await others.until(others.closed)
        process.kill()
        await process.wait()
        if is_lost:
            shutil.rmtree(run.folder.elite, ignore_errors=True)
        await others.say(opened(1), *story(B))
        await run.start("services.trajproc", endpoint="trajproc")
        await others.until(lambda: len(others.closed()) == 2)
        closed = others.closed()[1]
        await others.all_micros([name for fact in others.closed() for name in fact.micro_ids])
        assert closed.elites == [f"{A}-e0-a1"] and closed.divisor == 5 and closed.groups == [B] and closed.turns == 4
        (micro,) = [micro for micro in others.micros if micro.is_elite]
        assert micro.micro_id == closed.micro_ids[-1]
        first = next(row for micro in others.micros for row in micro.rows if row.sample_id == f"{A}-e0-a1")
        assert [row.tokens for row in micro.rows] == [first.tokens]
        assert sum(isinstance(fact, r.SampleReady) for fact in others.facts) == 8
