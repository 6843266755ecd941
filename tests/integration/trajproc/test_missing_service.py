"""What has not arrived when a batch's wait is over, through processor, scheduler and ledger as processes (C5)."""

import asyncio

import msgspec
import pytest

from gyre import ids
from gyre import records as r
from gyre.bus.subjects import natural_key
from tests.integration.trajproc.others import watching
from tests.integration.trajproc.test_setaside_service import asked
from tests.support import TestRun
from tests.unit.scheduler import facts
from tests.unit.trajproc.builders import dispatched, ended, execution, leased, opened, started, submitted

A, B = ids.group_id(0), ids.group_id(1)
LATE = ids.execution_id(B, 1)


def settings(missing: str) -> dict:
    trajproc = {"turns_per_step": 4, "milestone_share": 0.0, "wait_s": 1, "missing": missing, "missing_grace_s": 600}
    return {"trajproc": trajproc, "scheduler": {"cells": 2, "cell_capacity": 8}}


def ending(missing: str) -> list:
    """What the gateway says once it was commanded: one turn was made."""
    if missing == "drop":
        return [ended(B, 1, None, ending="voided")]
    *calls, end = execution(B, 1, 0.25, ending="timed_out")[1:]
    return [*calls, msgspec.structs.replace(end, reason="truncated")]


@pytest.mark.parametrize(
    ("missing", "word", "dropped"), [("truncate", "truncate", {}), ("drop", "void", {f"{LATE}-a1": "wait"})]
)
async def test_the_late_member_is_commanded_once_over_kills_and_the_batch_gets_what_it_left(
    tmp_path, missing, word, dropped
):
    """C5: A's two turns are in the batch, B's second member runs. The processor says that it is overdue and is killed (kill -9); a scheduler that
    starts only then commands it once, and once only after it was killed, too; its ending completes the batch of the processor's next start.
    What is known of B stands on the stream before A's end, which begins the wait."""
    async with TestRun(tmp_path, settings(missing)) as run, watching(run) as others:
        await run.start("services.ledger", endpoint="ledger")
        processor = await run.start("services.trajproc", endpoint="trajproc")
        for name in (A, B):
            await others.say(submitted(name), dispatched(name, 2))
        await others.say(started(), opened(0), *execution(B, 0, 1.0), leased(B, 1), facts.running(LATE))
        await others.say(*execution(A, 0, 1.0), *execution(A, 1, 0.0))
        await others.until(lambda: others.of(r.BatchOverdue))
        (fact,) = others.of(r.BatchOverdue)
        assert (fact.policy, fact.execution_ids, fact.turns, fact.turns_target) == (missing, [LATE], 2, 4)
        processor.kill()
        await processor.wait()

        scheduler = await run.start("services.scheduler", endpoint="scheduler")
        await others.until(lambda: others.of(r.ExecutionCommanded))
        (command,) = others.of(r.ExecutionCommanded)
        assert (command.execution_id, command.command, command.by, command.ordinal) == (LATE, word, "trajproc", 1)
        scheduler.kill()
        await scheduler.wait()
        await run.start("services.scheduler", endpoint="scheduler")

        await others.say(*ending(missing))
        await run.start("services.trajproc", endpoint="trajproc")
        await others.until(others.closed)
        (closed,) = others.closed()
        assert closed.groups == [A, B] and len(others.of(r.BatchOverdue)) == len(others.of(r.ExecutionCommanded)) == 1
        assert closed.turns == (4 if missing == "truncate" else 3)
        assert closed.truncated_share == (0.25 if missing == "truncate" else 0.0)
        found = {fact.sample_id: fact.reason for fact in others.of(r.SampleDropped) if fact.reason != "no_gradient"}
        assert found == dropped
        keys = [natural_key(fact) for fact in others.facts]
        assert len(keys) == len(set(keys)), "nothing is said twice"

        async def all_shown() -> dict | None:
            shown = (await asyncio.to_thread(asked, run))["missing"]
            return shown if shown["truncated"] + shown["dropped"] else None

        shown = await run.until(all_shown)
    assert [(row["policy"], row["batches"], row["executions"]) for row in shown["by_policy"]] == [(missing, 1, 1)]
    assert (shown["truncated"], shown["dropped"]) == ((1, 0) if missing == "truncate" else (0, 1))
