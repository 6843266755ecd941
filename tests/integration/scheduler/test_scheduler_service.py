"""The scheduler as a real process on a real bus; the test speaks for gateway, cells, trajectory processor and trainer."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import pytest

from gyre import records as r
from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.api.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from gyre.bus import Bus
from gyre.bus.work import WorkQueue, tasks
from gyre.ids import execution_id
from gyre.rpc import open_channel
from gyre.telemetry import span_context
from tests.support import WAIT_S, TestRun
from tests.unit.scheduler import facts

TICK_S = 0.5
"""How often the scheduler decides without a fact."""
SETTINGS = {
    "scheduler": {"cells": 2, "cell_capacity": 8, "groups_per_step": 2, "extra_depth_steps": 0.5, "tiers": [{"name": "all", "queue_max": 6}]},
}  # fmt: skip
"""(φ + μ)·B = 3 groups at each boundary."""


def a_task(name: str, **changes) -> pb.Task:
    limits = pb.Limits(wall_s=60, turns_max=4, context_tokens_max=512, output_tokens_max=32)
    return pb.Task(
        **{
            "task_id": name,
            "task_type": "repair",
            "environment": "env",
            "group_size": 2,
            "temperature": 1.0,
            "limits": limits,
            **changes,
        }
    )


class Cluster:
    """A run with the scheduler's process, and everybody else's voice."""

    def __init__(self, run: TestRun) -> None:
        self.run = run

    async def open(self) -> None:
        self.gateway, self.cell, self.trajproc, self.trainer = [
            await self.run.bus(identity) for identity in ("gateway", "cell", "trajproc", "trainer")
        ]
        self.queue: WorkQueue = tasks(self.gateway, 300.0, 1000, 10)
        self.channel = open_channel(self.run.folder.endpoint("scheduler"), self.run.service_key)
        self.stub = SchedulerServiceStub(self.channel)
        await self.start()

    async def start(self) -> None:
        self.process = await self.run.start("services.scheduler", endpoint="scheduler")

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def state(self) -> pb.GetStateResponse:
        return await self.stub.GetState(pb.GetStateRequest(), wait_for_ready=True, timeout=WAIT_S)

    async def state_where(self, holds) -> pb.GetStateResponse:
        """The state once `holds` is true of it."""

        async def found() -> pb.GetStateResponse | None:
            state = await self.state()
            return state if holds(state) else None

        found.__wrapped__ = holds
        return await self.run.until(found)

    async def settled(self, holds) -> pb.GetStateResponse:
        """As `state_where`, when nothing follows from it any more: what is decided is decided at once, and said on the next look."""
        state, looks = await self.state_where(holds), 0
        while looks < 3:
            await asyncio.sleep(TICK_S)
            before, state = state, await self.state_where(holds)
            looks = looks + 1 if state == before else 0
        return state

    async def taken(self, count: int) -> list[r.TaskDispatched]:
        """The next `count` tasks, claimed and acknowledged."""
        deliveries = [await self.run.until(lambda: self.queue.next(1.0)) for _ in range(count)]
        for delivery in deliveries:
            await delivery.ack_confirmed(WAIT_S)
        return [delivery.record for delivery in deliveries]

    async def tell(self, bus: Bus, *said) -> None:
        for fact in said:
            await bus.publish(fact)

    async def finish_role(self, cell: str, change: int, target: str) -> None:
        speakers = {"drained": self.gateway, "unloaded": self.cell, "training": self.trainer, "released": self.trainer,
                    "loaded": self.cell, "serving": self.gateway}  # fmt: skip
        for phase in r.CELL_PHASES[target][1:]:
            await speakers[phase].publish(facts.role(cell, change, target, phase))

    async def finish(self, task: r.TaskDispatched) -> None:
        name, purpose = task.execution_id, task.task.purpose
        await self.tell(self.gateway, facts.leased(name), facts.running(name), facts.ended(name, purpose=purpose))
        if purpose == "train":
            await self.tell(self.trajproc, facts.ready(name))


@asynccontextmanager
async def cluster(folder, settings=SETTINGS):
    async with TestRun(folder, settings) as run:
        there = Cluster(run)
        try:
            await there.open()
            yield there
        finally:
            await there.channel.close()


async def test_a_burst_goes_on_through_kill_9(tmp_path):
    """A3–A5: submit, evaluate, train a step; the scheduler is killed twice on the way and takes up where the stream stands."""
    async with cluster(tmp_path) as c:
        for index in range(2):
            await c.finish_role(f"cell-{index}", 0, "rollout")
        assert (await c.state_where(lambda s: s.capacity == 16)).capacity == 16

        given = [a_task("held", purpose="evaluation"), *(a_task(f"t{index}") for index in range(6))]
        reply = await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=given))
        assert list(reply.group_ids) == [f"g{index:06d}" for index in range(7)]
        held = await c.taken(2)
        assert {task.group_id for task in held} == {"g000000"} and await c.queue.next(0.3) is None

        await c.kill()
        for task in held:
            await c.finish(task)  # ends while nobody schedules
        await c.start()
        state = await c.state()  # it answers once it has caught up
        assert (state.waterlevel, state.queued_groups, state.finished) == (0, 6, 2)
        again = await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=given))
        assert list(again.group_ids) == list(reply.group_ids)

        await c.stub.StartTraining(pb.StartTrainingRequest(steps=3))
        first = await c.taken(6)
        assert [task.execution_id for task in first] == [
            execution_id(f"g{g:06d}", m) for g in (1, 2, 3) for m in (0, 1)
        ]
        assert {task.policy_version for task in first} == {0}
        # w 6 ≤ 16 − 8: the core is asked into training at once, the satellite (w ≤ 0) is not.
        await c.state_where(lambda s: s.cells[0].target == "training")

        await c.kill()
        await c.finish_role("cell-0", 1, "training")
        for task in first[:4]:
            await c.finish(task)
        samples = [f"{task.execution_id}-a1" for task in first[:4]]
        await c.tell(c.trajproc, facts.closed(0, ["g000001", "g000002"], samples))
        await c.tell(c.trainer, facts.updated(0, samples), facts.published(1))
        await c.start()
        # Three groups again: one is outstanding, so two are sent, and those of the first boundary are not sent again but offered:
        # g000003 was dispatched and never leased, and its tasks come from the queue's repeat or not at all.
        state = await c.state_where(lambda s: s.outstanding_groups == 3)
        assert (state.policy_version, state.steps_done, state.dispatched, state.refused_transitions) == (1, 1, 12, {})
        second = await c.taken(4)
        assert {task.group_id for task in second} == {"g000004", "g000005"}
        assert {task.policy_version for task in second} == {1}
        # The core's next data is not there (one group of two, unfinished): it is asked back.
        await c.state_where(lambda s: s.cells[0].target == "rollout" and s.cells[0].changes == 2)


async def test_tasks_that_a_crash_kept_from_the_queue_are_offered_at_the_start(tmp_path):
    """A3: the group's fact was stored, the process died before its tasks; they are on the queue when the next one is up.

    Each carries the root of its own trace (E), though no collector listens.
    """
    async with TestRun(tmp_path, {**SETTINGS, "ledger": {"traces": True}}) as run:
        scheduler = await run.bus("scheduler")
        await scheduler.publish(facts.submitted(0))
        await scheduler.publish(r.GroupDispatched(
            group_id="g000000", execution_ids=["g000000-e0", "g000000-e1"], task_type="repair", tenant="default", purpose="train", tier="all",
            policy_version=0, queue_wait_s=0.0, promotions=0, at_s=3.0,
        ))  # fmt: skip
        await run.start("services.scheduler", endpoint="scheduler")
        queue = tasks(await run.bus("gateway"), 300.0, 1000, 10)
        found = [await run.until(lambda: queue.next(1.0)) for _ in range(2)]
        sent = [(delivery.record.execution_id, delivery.record.dispatched_at_s) for delivery in found]
        assert sent == [("g000000-e0", 3.0), ("g000000-e1", 3.0)]
        assert len({span_context(delivery.traceparent).trace_id for delivery in found}) == 2
        assert await queue.next(0.3) is None


async def test_a_full_queue_takes_what_fits_and_tells_when_to_come_again(tmp_path):
    """C1: six groups may wait: six of eight are accepted, the rest is told to come back; wrong tasks are refused whole."""
    async with cluster(tmp_path) as c:
        reply = await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=[a_task(f"t{index}") for index in range(8)]))
        assert len(reply.group_ids) == 6
        with pytest.raises(grpc.aio.AioRpcError) as full:
            await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=[a_task("t6")]))
        assert full.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert float(dict(full.value.trailing_metadata())["retry-after-s"]) > 0
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=[a_task("t0"), a_task("x", payload_json="[]")]))
        assert wrong.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "JSON object" in wrong.value.details()
        assert (await c.state()).queued_groups == 6


async def test_the_waterlevel_is_told_as_it_changes(tmp_path):
    """A3: an evaluation of two executions is sent and one ends: the newest fact says w 1. Told to stop, the service ends cleanly."""
    async with cluster(tmp_path) as c:
        await c.stub.SubmitTasks(pb.SubmitTasksRequest(tasks=[a_task("held", purpose="evaluation")]))
        held = await c.taken(2)
        await c.finish(held[0])
        async with asyncio.timeout(WAIT_S):
            async for fact, _ in c.trajproc.follow([r.WaterlevelChanged]):
                if (fact.dispatched, fact.finished) == (2, 1):
                    assert (fact.waterlevel, fact.capacity, fact.outstanding_groups) == (1, 0, 0)
                    break
        c.process.terminate()
        assert await asyncio.wait_for(c.process.wait(), WAIT_S) == 0
