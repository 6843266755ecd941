"""One whole run of `gyre train`, from a configuration to a summary.

    model ──▶ start ──▶ evaluation_before ──▶ training ──▶ evaluation_after ──▶ audit ──▶ stop

The driver decides nothing about training: it submits tasks, says how many steps, and follows the facts.
"""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from gyre.api.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from gyre.api.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.api.scheduler.v1 import scheduler_pb2_grpc
from gyre.bus import Bus
from gyre.bus.access import SPEAKS, seed_path
from gyre.cli.training import tasks
from gyre.cli.training.model import prepare
from gyre.cli.training.panel import View
from gyre.cli.training.progress import FOLLOWS, Progress, Verdict
from gyre.cli.training.summary import summarize
from gyre.config import Config, fingerprint
from gyre.config.cells import serving
from gyre.config.staleness import law_steps
from gyre.errors import GyreError
from gyre.records import Fact
from gyre.rpc import open_channel
from gyre.rpc.auth import read_key
from gyre.run_folder import RunFolder
from gyre.supervisor import Supervisor
from gyre.supervisor.plan import stages
from gyre.tasks import end, whole

POLL_S = 0.25
FEED_EVERY_S = 0.1
RESERVE_FACTORS = {"longest_first": 1.25, "submitted": 2.5}
"""Queued tasks over what the next boundary is expected to take, by order of the queue. As submitted a long queue does no harm, and this one lasts
even where the scheduler finds a batch half as full as planned: what a boundary dispatches then never depends on how soon tasks are fed.
"""
STALL_S = 120.0
"""Without any fact for this long, and the wall clock of one execution beside, the run has stalled: that is a healthy run's longest silence."""
STOP_AGAIN_S = 3.0
"""Work that was cancelled takes its leave, which a second cancellation too soon would only disturb."""
RETURN_S = 60.0
"""After the last publish cells go back to serving; the evaluation begins at the latest then, on those that serve."""
INTAKE_S = 60.0
"""The ledger's time to take in what is on the bus before it is audited."""


class RunStalled(GyreError):
    """Nothing happens any more."""

    code = "stalled"


class Driver:
    """Runs once. `view` may be read at any time."""

    def __init__(self, config: Config, folder: RunFolder, say: Callable[[str], None], plan: Callable = stages) -> None:
        """`plan` says which processes the run has, as `gyre.supervisor.plan.stages` does."""
        self.config = config
        self._plan = plan
        self.folder = folder
        self._say = say
        self.progress = Progress()
        self.view = View(self.progress, config.run.steps, law_steps(config.scheduler), config.run.name)
        self.wall_s: dict[str, float] = {}
        self._source = tasks.load_source(config)
        self.begun = asyncio.Event()
        """Set with the first fact."""
        self._changed = asyncio.Event()
        self._following: asyncio.Task | None = None

    async def run(self) -> dict[str, Any]:
        """The summary; also written to summary.json in the run's folder. Raises GyreError; everything is stopped when it returns or raises."""
        begun_s = time.monotonic()
        tasks.check_source(self._source, self.config)
        self.folder.make()
        with self._timed("model"):
            path = await prepare(self.config, self.folder, self._say)
        self.config = msgspec.structs.replace(
            self.config, model=msgspec.structs.replace(self.config.model, path=str(path))
        )
        supervisor = Supervisor(self.folder, self.config, self._say, self._plan)
        with self._timed("start"):
            await supervisor.start()
        try:
            failed = asyncio.ensure_future(supervisor.failed())
            work = asyncio.ensure_future(self._work())
            try:
                await asyncio.wait([failed, work], return_when=asyncio.FIRST_COMPLETED)
                before, after, audit, books = work.result() if work.done() else failed.result()
            finally:
                await end(failed, work, again_s=STOP_AGAIN_S)
        finally:
            with self._timed("stop"):
                await supervisor.stop()
        self.wall_s["total"] = time.monotonic() - begun_s
        summary = summarize(
            self.config, fingerprint(self.config), self.progress, before, after, audit, books, self.wall_s
        )
        write_json(self.folder.root / "summary.json", summary)
        return summary

    async def _work(self) -> tuple[list[Verdict], list[Verdict], dict[str, bool], dict[str, Any]]:
        """Everything between start and stop."""
        async with self._scheduler() as scheduler, self._bus() as bus:
            self._following = following = asyncio.create_task(self._follow(bus))
            try:
                before = await self._evaluate(scheduler, "before")
                with self._timed("training"):
                    await self._train(scheduler)
                after = await self._evaluate(scheduler, "after")
                with self._timed("audit"):
                    audit, books = await self._ask_ledger(bus)
                return before, after, audit, books
            finally:
                await end(following)

    async def _evaluate(self, scheduler, when: str) -> list[Verdict]:
        with self._timed(f"evaluation_{when}"):
            if not self.config.evaluation.tasks:
                return []
            submitted = tasks.heldout(self._source, self.config, f"evaluation-{when}")
            groups = set(await tasks.submit(scheduler, submitted))
            setattr(self.view, when, groups)
            await self._until(lambda: self.progress.has_ended(groups) == len(groups))
        verdicts = self.progress.evaluated(groups)
        self.view.heldout.append((when, sum(v.success for v in verdicts) / len(verdicts)))
        return verdicts

    async def _train(self, scheduler) -> None:
        steps, cells = self.config.run.steps, len(serving(self.config.scheduler))
        source = tasks.training(self._source, self.config)
        # All of the first boundary's tasks are there before it happens: what it dispatches depends on the seed alone.
        submitted = self._reserve
        await tasks.submit(scheduler, self._take(source, submitted))
        await retried(lambda: scheduler.StartTraining(pb.StartTrainingRequest(steps=steps), timeout=30))
        feeding = asyncio.create_task(self._feed(scheduler, source, submitted))
        try:
            done = asyncio.ensure_future(
                self._until(lambda: self.progress.steps >= steps and self.progress.published >= steps)
            )
            await asyncio.wait([done, feeding], return_when=asyncio.FIRST_COMPLETED)
            if feeding.done():
                feeding.result()
            await done
        finally:
            await end(feeding, done)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETURN_S):
                await self._until(lambda: self.progress.all_serving(cells))
        await self._until(self.progress.any_serving)

    async def _feed(self, scheduler, source: Iterator[pb.Task], submitted: int) -> None:
        """Keep a little more in the queue than the next boundary can ask for.

        How many tasks a run takes follows from turns, so it is not known before; and where the longest are sent first, a long queue
        would be sent one type of task after the other.
        """
        while True:
            missing = self._reserve - (submitted - len(self.progress.groups_dispatched))
            if missing > 0:
                await tasks.submit(scheduler, self._take(source, missing))
                submitted += missing
            await asyncio.sleep(FEED_EVERY_S)

    @property
    def _reserve(self) -> int:
        """What a boundary fills up to, (φ+μ)·B groups, with B as batches really consume them, and more by the order's factor."""
        given = self.config.scheduler
        depth = given.extra_depth_steps + given.steps_per_publish
        return math.ceil(RESERVE_FACTORS[given.order] * depth * self.progress.groups_per_step(given.groups_per_step))

    def _take(self, source: Iterator[pb.Task], count: int) -> list[pb.Task]:
        return [next(source) for _ in range(count)]

    async def _ask_ledger(self, bus: Bus) -> tuple[dict[str, bool], dict[str, Any]]:
        facts = [kind for kinds in SPEAKS.values() for kind in kinds if kind in Fact.__args__]
        newest = await bus.last_sequence(facts)
        async with self._channel("ledger") as channel:
            ledger = ledger_pb2_grpc.LedgerServiceStub(channel)
            deadline_s = time.monotonic() + INTAKE_S
            while time.monotonic() < deadline_s:
                reply = await retried(lambda: ledger.GetIntake(ledger_pb2.GetIntakeRequest(), timeout=30))
                if reply.stream_sequence >= newest:
                    break
                await asyncio.sleep(POLL_S)
            audit = await retried(lambda: ledger.Audit(ledger_pb2.AuditRequest(), timeout=120))
            books = await retried(lambda: ledger.GetBooks(ledger_pb2.GetBooksRequest(), timeout=120))
        return {criterion.name: criterion.passed for criterion in audit.criteria}, json.loads(books.json)

    async def _follow(self, bus: Bus) -> None:
        async for fact, _ in bus.follow(FOLLOWS):
            self.progress.apply(fact)
            self._changed.set()
            self.begun.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Raises RunStalled when no fact comes any more."""
        facts, heard_s = self.progress.facts, time.monotonic()
        while not holds():
            if self._following is not None and self._following.done():
                self._following.result()
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._changed.wait()
            if self.progress.facts != facts:
                facts, heard_s = self.progress.facts, time.monotonic()
            elif time.monotonic() - heard_s > STALL_S + self.config.tasks.wall_s:
                raise RunStalled(
                    f"nothing has happened for {time.monotonic() - heard_s:.0f} s in {self.view.phase} "
                    f"({self.view.line()}{await self._nobody_serves()}); see {self.folder.logs}"
                )

    async def _nobody_serves(self) -> str:
        """The commonest cause of a stall, where it is the cause: no process is attached under the name the tasks ask for."""
        wanted = self.config.tasks.environment
        try:
            async with self._channel("rollout") as channel:
                state = await rollout_pb2_grpc.RolloutServiceStub(channel).GetState(
                    rollout_pb2.GetStateRequest(), timeout=5
                )
        except grpc.aio.AioRpcError as error:
            return f"; the gateway does not answer: {error.details()}"
        if wanted in state.environment_slots:
            return ""
        return f"; no environment `{wanted}` is attached, only: {', '.join(sorted(state.environment_slots)) or 'none'}"

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        self.view.phase = phase
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self.wall_s[phase] = time.monotonic() - begun_s

    @contextlib.asynccontextmanager
    async def _bus(self) -> AsyncIterator[Bus]:
        url = f"nats://{self.folder.endpoint('bus')}"
        bus = await Bus.connect(url, self.config.run.name, "operator", seed_path(self.folder.keys, "operator"))
        try:
            yield bus
        finally:
            await whole(bus.close())

    @contextlib.asynccontextmanager
    async def _scheduler(self) -> AsyncIterator[scheduler_pb2_grpc.SchedulerServiceStub]:
        async with self._channel("scheduler") as channel:
            yield scheduler_pb2_grpc.SchedulerServiceStub(channel)

    def _channel(self, name: str) -> grpc.aio.Channel:
        return open_channel(self.folder.endpoint(name), read_key(self.folder.keys, "service"))


async def retried(call: Callable[[], Awaitable[Any]]) -> Any:
    """A call that may be repeated, through a service's restart. Raises AioRpcError for anything that does not pass."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() not in tasks.RETRIED:
                raise
            await asyncio.sleep(0.5)


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(value, indent=1) + "\n")
    temporary.replace(path)
