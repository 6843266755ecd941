"""The scheduler process: follow, decide, publish.

facts ──▶ Feed.follow ──▶ State ──▶ decide (after facts, and every TICK_S) ──▶ publish ──▶ facts
                            │
                            ├──▶ WaterlevelChanged, the newest at most every WATERLEVEL_EVERY_S
                            └──▶ a snapshot every scheduler.snapshot_facts facts and at the end
"""

import asyncio
import contextlib
import logging

from gyre import folds
from gyre.api.scheduler.v1 import scheduler_pb2_grpc as service
from gyre.clock import Clock
from gyre.records import RoleChanged, WaterlevelChanged, WeightsPublished
from gyre.service import Context, until_stopped
from gyre.telemetry import emit_span
from services.scheduler.bus import Feed
from services.scheduler.core import Settings, State, decide
from services.scheduler.core.state import encode_state
from services.scheduler.planning import plan_for_ever
from services.scheduler.rpc import Scheduler
from services.scheduler.snapshots import newest, open_snapshots
from services.scheduler.watch import Watched
from services.scheduler.what_if import WhatIf

log = logging.getLogger(__name__)

TICK_S = 0.5
"""Aging and alarms need no fact to come due."""
WATERLEVEL_EVERY_S = 0.05
"""Twenty points a second draw any curve; in between only the newest value counts."""


async def run(context: Context) -> None:
    """Dispatches tasks and moves cells between rollout and training."""
    bus = await context.bus("scheduler")
    stream, last_sequence = await bus.facts_stream()
    snapshots = open_snapshots(context.folder.snapshots, stream)
    state, sequence = newest(snapshots, Settings.of(context.config, context.fingerprint), last_sequence)
    watched = Watched()

    def on_fact(state: State, fact: object) -> None:
        trace(state, fact)
        if isinstance(fact, RoleChanged):
            watched.push(fact)

    feed = Feed(bus, state, on_fact, sequence)
    await feed.check_whole()
    server = context.rpc_server("scheduler")
    what_if = WhatIf(context.config.scheduler, context.config.trajproc.age_steps_max)
    server.add(service.add_SchedulerServiceServicer_to_server, Scheduler(feed, context.clock, watched, what_if),
               "gyre.api.scheduler.v1.SchedulerService")  # fmt: skip

    def encoded() -> bytes:
        return encode_state(feed.state)

    async def work() -> None:
        await feed.catch_up()
        offered = await feed.offer_again()
        log.info("at fact %d, from a snapshot at %d: %d groups queued, %d tasks offered again",
                 feed.sequence, sequence, len(state.queue), offered)  # fmt: skip
        await server.start()
        await asyncio.gather(
            decide_for_ever(feed, context.clock), tell_waterlevel(feed, context.clock, watched),
            folds.keep(snapshots, lambda: feed.sequence, encoded, context.config.scheduler.snapshot_facts, context.clock),
            plan_for_ever(feed, context.clock, context.config),
        )  # fmt: skip

    try:
        await until_stopped(context, feed.follow(), work())
        if feed.sequence > sequence:
            snapshots.write(snapshots.pack(encoded(), feed.sequence), feed.sequence)
    finally:
        await server.stop()
        await bus.close()


async def decide_for_ever(feed: Feed, clock: Clock) -> None:
    """Decide when something happened, or after TICK_S; again at once until nothing more follows."""
    while True:
        feed.changed.clear()
        while decisions := decide(feed.state, clock.now_s()):
            await feed.publish(decisions)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await feed.changed.wait()


async def tell_waterlevel(feed: Feed, clock: Clock, watched: Watched) -> None:
    """Publish w(t) and C_R(t) as they change."""
    said: tuple[int, ...] | None = None
    while True:
        state = feed.state
        now = (state.dispatched, state.finished, state.capacity, state.outstanding_groups, state.published_version)
        if now != said:
            fact = WaterlevelChanged(
                waterlevel=state.waterlevel, dispatched=state.dispatched, finished=state.finished, capacity=state.capacity,
                outstanding_groups=state.outstanding_groups, policy_version=state.published_version, burst=state.burst,
                at_s=clock.now_s(),
            )  # fmt: skip
            watched.push(fact)
            await feed.bus.publish(fact)
            said = now
        await asyncio.sleep(WATERLEVEL_EVERY_S)


def trace(state: State, fact: object) -> None:
    """Spans of what a fact completes; called before the fact is folded."""
    if isinstance(fact, RoleChanged) and fact.phase != "requested":
        cell = state.cells.get(fact.cell)
        if cell is not None and cell.change == fact.change and cell.phase != fact.phase:
            emit_span("cell.role", cell.at_s, fact.at_s, gyre_cell=fact.cell, gyre_change=fact.change, gyre_target=fact.target,
                      gyre_phase=fact.phase, gyre_burst=fact.burst, gyre_work_s=fact.duration_s)  # fmt: skip
    elif isinstance(fact, WeightsPublished) and fact.version > state.published_version:
        emit_span("burst", state.boundary_at_s, fact.at_s, gyre_burst=state.burst, gyre_policy_version=fact.version,
                  gyre_steps=fact.version - state.published_version, gyre_groups_per_step=state.groups_per_step)  # fmt: skip
