"""Speaks for the scheduler, the trainer and an environment process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import openai

from gyre.api.rollout.v1 import cells_pb2, cells_pb2_grpc, environments_pb2_grpc, rollout_pb2, rollout_pb2_grpc
from gyre.api.rollout.v1 import environments_pb2 as pb
from gyre.bus import Bus
from gyre.records import (
    AlarmRaised,
    CallRecorded,
    CellReported,
    ExecutionCommanded,
    ExecutionEnded,
    ExecutionLeased,
    ExecutionResumed,
    ExecutionStarted,
    ExecutionSuspended,
    GroupDispatched,
    GroupSubmitted,
    Limits,
    RoleChanged,
    TaskDispatched,
    TaskSpec,
)
from gyre.rpc import open_channel
from gyre.tasks import end
from tests.support import WAIT_S, TestRun, until

FACTS = (
    AlarmRaised, CallRecorded, CellReported, ExecutionEnded, ExecutionLeased, ExecutionResumed, ExecutionStarted, ExecutionSuspended, RoleChanged,
)  # fmt: skip


class EnvironmentDouble:
    """One environment process, by hand: sends what the test says, collects what comes."""

    def __init__(self, run: TestRun, instance: str, name: str, slots: int = 8) -> None:
        self.run, self.instance, self.name, self.slots = run, instance, name, slots
        self.endpoint = "rollout"
        self.running: list[tuple[str, int]] = []
        self.inbox: asyncio.Queue[pb.AttachResponse] = asyncio.Queue()
        self.broken = asyncio.Event()
        """The other end ended the stream."""
        self.assignments: dict[str, pb.AttachResponse] = {}
        self._serial = 0

    async def attach(self) -> pb.AttachResponse:
        self.broken.clear()
        self._outgoing: asyncio.Queue[pb.AttachRequest] = asyncio.Queue()
        self._channel = open_channel(self.run.folder.endpoint(self.endpoint), self.run.environment_key)
        running = [pb.Running(execution_id=e, attempt=a) for e, a in self.running]
        hello = pb.Hello(environment=self.name, slots=self.slots, instance_id=self.instance, running=running)
        await self._outgoing.put(pb.AttachRequest(request_id="hello", hello=hello))
        stream = environments_pb2_grpc.EnvironmentServiceStub(self._channel).Attach(self._send(), wait_for_ready=True)
        self._tasks = [asyncio.create_task(self._receive(stream)), asyncio.create_task(self._beat())]
        return await asyncio.wait_for(self.inbox.get(), WAIT_S)

    async def detach(self) -> None:
        await end(*self._tasks)
        await self._channel.close(None)

    async def _send(self) -> AsyncIterator[pb.AttachRequest]:
        while True:
            yield await self._outgoing.get()

    async def _receive(self, stream) -> None:
        with contextlib.suppress(Exception):
            async for message in stream:
                if message.HasField("assignment"):
                    self.assignments[message.execution_id] = message
                    self.running.append((message.execution_id, message.attempt))
                self.inbox.put_nowait(message)
        self.broken.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            await self._outgoing.put(pb.AttachRequest(request_id="beat", heartbeat=pb.Heartbeat()))

    async def say(self, execution: str, attempt: int, **body: Any) -> str:
        self._serial += 1
        name = f"r{self._serial}"
        await self._outgoing.put(pb.AttachRequest(request_id=name, execution_id=execution, attempt=attempt, **body))
        return name

    async def next(self, kind: str, timeout_s: float = WAIT_S) -> pb.AttachResponse:
        """The next message of a kind; others in between are an error."""
        message = await asyncio.wait_for(self.inbox.get(), timeout_s)
        assert message.WhichOneof("body") == kind, message
        return message

    async def begin(self, execution: str) -> tuple[str, int]:
        """Wait for the assignment, say Started; (api key, attempt)."""
        message = await until(lambda: self.assignments.get(execution))
        name = await self.say(execution, message.attempt, started=pb.Started(image_digest="sha256:x"))
        while (reply := await asyncio.wait_for(self.inbox.get(), WAIT_S)).request_id != name:
            pass
        assert reply.HasField("accepted"), reply
        return message.assignment.api_key, message.attempt


class Driver:
    """The rest of the system."""

    def __init__(
        self, run: TestRun, gateway: asyncio.subprocess.Process, cells: list[asyncio.subprocess.Process]
    ) -> None:
        self.run = run
        self.cells = cells
        self.gateway = gateway
        self.facts = run.facts
        self.environment: EnvironmentDouble
        self.execution = ""
        """The present test's execution; `name(i)` gives more."""
        self._tests = 0
        self._change = {"cell-0": 0, "cell-1": 0}

    async def __aenter__(self) -> "Driver":
        self.scheduler: Bus = await self.run.bus("scheduler")
        self.trainer: Bus = await self.run.bus("trainer")
        self.run.listen(FACTS)
        await asyncio.gather(*(self._to_rollout(cell) for cell in self._change))
        return self

    async def __aexit__(self, *_: object) -> None:
        """What was started goes with the run."""

    async def new_environment(self) -> None:
        self._tests += 1
        self.execution = self.name(0)
        self.environment = EnvironmentDouble(self.run, f"instance-{self._tests}", f"environment-{self._tests}")
        await self.environment.attach()

    def name(self, index: int) -> str:
        return f"g{self._tests:06d}-e{index}"

    async def to_training(self, cell: str) -> RoleChanged:
        """Ask for it and wait until the cell is empty; the gateway's `drained`."""
        self._change[cell] += 1
        change = self._change[cell]
        await self.role(cell, change, "training", "requested")
        await self.fact(
            lambda f: isinstance(f, RoleChanged) and (f.cell, f.change, f.phase) == (cell, change, "unloaded")
        )
        return await self.fact(
            lambda f: isinstance(f, RoleChanged) and (f.cell, f.change, f.phase) == (cell, change, "drained")
        )

    async def to_rollout(self, cell: str) -> None:
        self._change[cell] += 1
        await self._to_rollout(cell)

    async def all_serving(self) -> None:
        for cell, change in self._change.items():
            if change % 2:
                await self.to_rollout(cell)

    async def _to_rollout(self, cell: str) -> None:
        change = self._change[cell]
        await self.role(cell, change, "rollout", "requested")
        await self.role(cell, change, "rollout", "released")
        await self.fact(
            lambda f: isinstance(f, RoleChanged) and (f.cell, f.change, f.phase) == (cell, change, "serving")
        )

    async def begin(self, index: int = 0, **limits: Any) -> tuple[str, int]:
        """Dispatch an execution of this test and start it: (api key, attempt)."""
        await self.dispatch(self.name(index), **limits)
        return await self.environment.begin(self.name(index))

    async def ending(self) -> ExecutionEnded:
        return await self.fact(lambda f: isinstance(f, ExecutionEnded) and f.execution_id == self.execution)

    def about(self) -> list[Any]:
        """Facts about this test's execution."""
        return [fact for fact in self.facts if getattr(fact, "execution_id", "") == self.execution]

    async def until(self, what: Callable[[], Any]) -> Any:
        return await self.run.until(what)

    async def fact(self, fits: Callable[[Any], bool]) -> Any:
        """The first fact that fits, now or soon."""

        def found() -> Any:
            return next((fact for fact in self.facts if fits(fact)), None)

        found.__wrapped__ = fits
        return await self.run.until(found)

    async def role(self, cell: str, change: int, target: str, phase: str) -> None:
        bus = self.scheduler if phase == "requested" else self.trainer
        await bus.publish(RoleChanged(cell=cell, change=change, target=target, phase=phase, at_s=time.time()))

    async def dispatch(self, execution: str, output_tokens_max: int = 24, attempt_base: int = 0, **more: Any) -> None:
        limits = Limits(
            wall_s=more.pop("wall_s", 600), turns_max=more.pop("turns_max", 20), context_tokens_max=512,
            output_tokens_max=output_tokens_max, tokens_max=more.pop("tokens_max", 0),
        )  # fmt: skip
        environment = more.pop("environment", self.environment.name)
        task = TaskSpec(task_id="t", task_type="repair", environment=environment, seed=1, limits=limits, **more)
        await self.scheduler.publish(
            TaskDispatched(
                execution_id=execution, group_id=execution.split("-")[0], member=0, task=task, tier="all", policy_version=0,
                seed=7, attempt_base=attempt_base, dispatched_at_s=time.time(),
            )
        )  # fmt: skip

    async def command(self, ordinal: int, word: Any, index: int = 0) -> None:
        """The scheduler's word to an execution of this test."""
        execution = self.name(index)
        await self.scheduler.publish(
            ExecutionCommanded(
                execution_id=execution, group_id=execution.split("-")[0], ordinal=ordinal, command=word, by="test", reason="because",
                at_s=time.time(),
            )
        )  # fmt: skip

    async def submitted(self) -> None:
        """The facts of a group of three that was submitted and dispatched."""
        group = self.execution.split("-")[0]
        limits = Limits(wall_s=600, turns_max=20, context_tokens_max=512, output_tokens_max=24)
        task = TaskSpec(task_id=group, task_type="repair", environment=self.environment.name, seed=1, limits=limits)
        await self.scheduler.publish(GroupSubmitted(group_id=group, task=task, tier="all", at_s=time.time()))
        await self.scheduler.publish(
            GroupDispatched(
                group_id=group, execution_ids=[self.name(index) for index in range(3)], task_type="repair", tenant="default",
                purpose="train", tier="all",
                policy_version=3, queue_wait_s=0.0, promotions=0, at_s=time.time(),
            )
        )  # fmt: skip

    def client(self, key: str, retries: int = 0) -> openai.AsyncOpenAI:
        base = f"http://{self.run.folder.endpoint('gateway')}/v1"
        return openai.AsyncOpenAI(base_url=base, api_key=key, max_retries=retries, timeout=WAIT_S)

    async def calls_waiting(self, count: int) -> None:
        """Wait until that many calls wait for a cell."""

        async def are_waiting() -> bool:
            return (await self.state()).calls_waiting == count

        await self.until(are_waiting)

    async def state(self) -> rollout_pb2.GetStateResponse:
        async with open_channel(self.run.folder.endpoint("rollout"), self.run.service_key) as channel:
            return await rollout_pb2_grpc.RolloutServiceStub(channel).GetState(rollout_pb2.GetStateRequest())

    async def restart_gateway(self, signal: int) -> int:
        """The exit code of the one that was stopped."""
        self.gateway.send_signal(signal)
        code = await self.gateway.wait()
        self.gateway = await self.run.start("services.rollout", endpoint="rollout")
        return code

    async def kill_cell(self, index: int) -> None:
        self.cells[index].kill()
        await self.cells[index].wait()

    async def start_cell(self, index: int) -> None:
        self.cells[index] = await self.run.start(
            "services.rollout.cell", "--cell", str(index), endpoint=f"cell-{index}"
        )

    async def cell_status(self, index: int) -> cells_pb2.GetStatusResponse:
        async with open_channel(self.run.folder.endpoint(f"cell-{index}"), self.run.service_key) as channel:
            return await cells_pb2_grpc.CellServiceStub(channel).GetStatus(cells_pb2.GetStatusRequest())

    async def recorded(self, count: int, index: int = 0) -> list[CallRecorded]:
        """Wait for that many call records of an execution; no more than these are on record."""
        await self.until(lambda: len(self.records(index)) >= count)
        await self.run.heard_all()
        found = self.records(index)
        assert len(found) == count, [record.call_id for record in found]
        return found

    def records(self, index: int = 0) -> list[CallRecorded]:
        return [fact for fact in self.facts if isinstance(fact, CallRecorded) and fact.execution_id == self.name(index)]
