"""kill -9 of each process of a run, one at a time and in the middle of its work (A1, A6, A7, A8, C6).

The moments are read from facts and service states; "goes on" means that the process is there again and another optimizer step was done after
that. At the end the books balance, the audit passes, and no sample was trained twice or lost, checked on the facts themselves as well.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from gyre import records as r
from gyre.api.rollout.v1 import rollout_pb2, rollout_pb2_grpc
from gyre.api.trainer.v1 import core_pb2, core_pb2_grpc
from tests.slow.support import POLL_S, Train, check_books

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

UP_S = 600.0
"""The first evaluation begins within this: importing torch in five processes takes half a minute on a busy machine."""
MOMENT_S = 300.0
GOES_ON_S = 300.0
IN_FLIGHT_S = 2.0
SLOTS = 16
SATELLITE = ("services.trainer", "--cell", "1")
KILLS = {
    "rollout.lease_s": 8.0, "trainer.claim_s": 5.0, "trajproc.micro_tokens": 640, "trajproc.age_steps_max": 20, "trainer.lr": 2e-4,
    "scheduler.extra_depth_steps": 0.0,
    "environments": f'[{{name = "repair", command = ["{{python}}", "-m", "examples.repair.environment"], slots = {SLOTS}}}]',
}  # fmt: skip
"""What was held by the dead goes to others after seconds, which are more than a busy machine lets the living wait; micro-steps of one or two rows, so
that a step is in its middle for long; fewer slots than executions, so that the environment is full when its gateway comes back; nothing is
dispatched beyond a burst, so that the satellite trains in most."""


@dataclass
class Killing:
    """What was killed, when, and when the run was seen to go on."""

    name: str
    at_s: float
    steps: int
    recovered_s: float = 0.0
    undone: set[str] = field(default_factory=set)
    """Executions that were running then."""


async def at_open_step(run: Train) -> None:
    """A step is open: some micro-steps are computed and some are not."""
    async with run.channel("trainer-0") as channel:
        await _poll(run, lambda: _is_in_the_middle(channel, cells=1), "a step in its middle")


async def at_open_step_of_satellite(run: Train) -> None:
    """The same with both cells in training, and the satellite frozen, so that the step cannot end before the kill."""
    async with run.channel("trainer-0") as channel:

        async def is_frozen_in_the_middle() -> bool:
            if not await _is_in_the_middle(channel, cells=2):
                return False
            pid = run.pid(*SATELLITE)
            os.kill(pid, signal.SIGSTOP)
            if await _is_in_the_middle(channel, cells=2):
                return True
            os.kill(pid, signal.SIGCONT)
            return False

        await _poll(run, is_frozen_in_the_middle, "a step with the satellite in its middle")


async def _is_in_the_middle(core: grpc.aio.Channel, cells: int) -> bool:
    state = await core_pb2_grpc.CoreServiceStub(core).GetState(core_pb2.GetStateRequest(), timeout=5)
    return state.step_open and len(state.cells) >= cells and 0 < state.micro_computed < state.micro_known


async def at_running_calls(run: Train) -> None:
    """The gateway waits for cells on behalf of several executions."""
    async with run.channel("rollout") as channel:
        gateway = rollout_pb2_grpc.RolloutServiceStub(channel)

        async def are_running() -> bool:
            return (await gateway.GetState(rollout_pb2.GetStateRequest(), timeout=5)).calls_running >= 4

        await _poll(run, are_running, "running calls")


async def _poll(run: Train, holds: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline_s = time.monotonic() + MOMENT_S
    while True:
        try:
            if await holds():
                return
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error
        assert time.monotonic() < deadline_s, f"never seen: {what}\n{run.said()}"
        await asyncio.sleep(POLL_S)


async def in_a_burst(run: Train) -> None:
    """Steps were done since the last publish, or one is open."""

    def holds() -> bool:
        return len(run.of(r.StepOpened)) > len(run.of(r.StepUpdated)) and _newest_phase(run, "cell-0") == "training"

    await run.until(holds, MOMENT_S, "a burst")


async def at_open_batch(run: Train) -> None:
    """Groups are in the open batch, and it is not closed."""

    def holds() -> bool:
        begun, closed = run.of(r.BatchExtended), run.of(r.BatchClosed)
        return bool(begun) and begun[-1].step not in {fact.step for fact in closed}

    await run.until(holds, MOMENT_S, "an open batch")


async def at_flowing_calls(run: Train) -> None:
    """Twenty more call records than when it was looked first, the newest of them just now."""
    seen = [len(run.of(r.CallRecorded))]

    def holds() -> bool:
        seen.append(len(run.of(r.CallRecorded)))
        return seen[-1] > seen[-2] and seen[-1] >= seen[0] + 20

    await run.until(holds, MOMENT_S, "flowing call records")


def _newest_phase(run: Train, cell: str) -> str:
    phases = [fact.phase for fact in run.of(r.RoleChanged) if fact.cell == cell]
    return phases[-1] if phases else ""


Moment = Callable[[Train], Awaitable[None]]
PROCESSES: list[tuple[str, Moment, tuple[str, ...]]] = [
    ("satellite", at_open_step_of_satellite, SATELLITE),
    ("gateway", at_running_calls, ("services.rollout",)),
    ("scheduler", in_a_burst, ("services.scheduler",)),
    ("trajproc", at_open_batch, ("services.trajproc",)),
    ("ledger", at_flowing_calls, ("services.ledger",)),
    ("core", at_open_step, ("services.trainer", "--cell", "0")),
    ("cell", at_running_calls, ("services.rollout.cell", "--cell", "1")),
    ("environment", at_running_calls, ("examples.repair.environment",)),
]
BUS = ("nats-server",)


async def kill(run: Train, name: str, moment: Moment, words: tuple[str, ...]) -> Killing:
    """Kill it at its moment; returns when it is there again and a step was done after that."""
    await moment(run)
    killing = Killing(name, time.time(), 0)
    pid = run.kill(*words)
    gone_s = time.time()
    await run.until(lambda: run.pid(*words) not in (0, pid), GOES_ON_S, f"another process after the {name}'s death")
    back_s = time.time()
    step = await run.until(
        lambda: next((fact for fact in run.of(r.StepUpdated) if fact.at_s > back_s), None), GOES_ON_S, f"a step after the {name}'s death"
    )  # fmt: skip
    if name == "satellite":
        joined = await run.until(
            lambda: next((f for f in run.of(r.StepJoined) if f.cell == "cell-1" and f.at_s > killing.at_s), None),
            GOES_ON_S, "the satellite in a step again",
        )  # fmt: skip
        step = max(step, joined, key=lambda fact: fact.at_s)
    killing.recovered_s = step.at_s - killing.at_s
    killing.steps = sum(fact.at_s <= killing.at_s for fact in run.of(r.StepUpdated))
    started = {fact.execution_id for fact in run.of(r.ExecutionStarted) if fact.at_s <= killing.at_s}
    # Its last words may have been under way when it died.
    killing.undone = started - {f.execution_id for f in run.of(r.ExecutionEnded) if f.at_s <= gone_s + IN_FLIGHT_S}
    print(f"{name}: killed after {killing.steps} steps, {killing.recovered_s:.1f} s until the run goes on")
    return killing


async def test_each_process_is_killed_once_and_the_run_goes_on(model: Path, tmp_path: Path):
    """A1, A6, A7, A8, C6: satellite, gateway, scheduler, trajectory processor, ledger, core, rollout cell, environment."""
    steps = 40  # eight kills, each at its moment, and their recoveries take about 15
    async with Train(tmp_path / "run", model, {**KILLS, "run.name": "kills", "run.steps": steps}) as run:
        await run.until(lambda: run.of(r.StepUpdated), UP_S, "the first step")
        done = {name: await kill(run, name, moment, words) for name, moment, words in PROCESSES}
        summary = await run.finish(1500)
        check_books(run, summary, steps)

        # Killed in mid-step, so what it had computed of this step was lost; nevertheless the step has each micro-step once (above).
        satellite = done["satellite"]
        assert run.of(r.StepUpdated)[satellite.steps].opened_at_s < satellite.at_s
        assert any(
            "cell-1" in fact.micro_cells.values() for fact in run.of(r.StepUpdated) if fact.at_s > satellite.at_s
        )

        # Calls were running when the gateway died. Their executions lived on in the environment: no new attempt of any of them.
        endings = {fact.execution_id: fact for fact in run.of(r.ExecutionEnded)}
        assert done["gateway"].undone
        assert {endings[name].attempt for name in done["gateway"].undone} == {1}
        # With the environment its executions died: they began anew.
        assert done["environment"].undone
        assert {endings[name].attempt for name in done["environment"].undone} == {2}


async def test_the_bus_is_killed_three_times_and_the_run_goes_on(model: Path, tmp_path: Path):
    """A1, A7, C6: in mid-call, in mid-step, and with call records on their way to the ledger."""
    steps = 14
    async with Train(tmp_path / "run", model, {**KILLS, "run.name": "bus", "run.steps": steps}) as run:
        await run.until(lambda: run.of(r.StepUpdated), UP_S, "the first step")
        for moment in (at_running_calls, at_open_step, at_flowing_calls):
            await kill(run, "bus", moment, BUS)
        summary = await run.finish(1000)
        check_books(run, summary, steps)
