"""The gateway process: restore, listen, follow."""

import argparse
import asyncio
import contextlib
import ctypes
import gc
from pathlib import Path

from gyre import key_files
from gyre.api.rollout.v1 import environments_pb2_grpc, rollout_pb2, rollout_pb2_grpc
from gyre.config.cells import serving
from gyre.ids import cell_id
from gyre.rpc import RpcServer
from gyre.service import Context, until_stopped
from services.rollout.core.routing import Routing
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate
from services.rollout.gateway.budgets import Budgets
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.commands import Commands
from services.rollout.gateway.environments import Environments
from services.rollout.gateway.http import HttpGateway
from services.rollout.gateway.leasing import Leasing
from services.rollout.gateway.peers import Peers
from services.rollout.gateway.pool import CellPool
from services.rollout.gateway.reports import CellReports
from services.rollout.gateway.restore import restore
from services.rollout.gateway.roles import Roles

SECRET_NAME = "gateway.secret"
"""In the run's keys folder: signs the keys of executions, so that a gateway that started anew accepts them."""

NEW_OBJECTS_MAX = 20_000
"""The collector of reference cycles looks after this many; a call makes few that are in one."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
BUFFER_BYTES_MAX, FREE_BYTES_MAX = 32 << 20, 64 << 20
"""The C library keeps buffers up to the first, until it has more than the second: what a long body takes for a moment, the next one takes
again. Given back to the system each time it would be cleared page by page."""


class _State(rollout_pb2_grpc.RolloutServiceServicer):
    def __init__(self, calls: ModelCalls, pool: CellPool, leasing: Leasing) -> None:
        self._calls, self._pool, self._leasing = calls, pool, leasing

    async def GetState(self, request: rollout_pb2.GetStateRequest, context: object) -> rollout_pb2.GetStateResponse:
        slots: dict[str, int] = {}
        for attachment in self._leasing.book.attachments.values():
            if attachment.connected:
                slots[attachment.environment] = slots.get(attachment.environment, 0) + attachment.slots
        by_cell = {name: len(works) for name, works in self._pool.running.items()}
        return rollout_pb2.GetStateResponse(
            sessions=self._calls.sessions, calls_running=sum(by_cell.values()), calls_waiting=self._pool.waiting,
            calls_recorded=self._calls.recorded, tokens_sampled=self._calls.tokens_sampled, environment_slots=slots,
            calls_by_cell=by_cell, calls_moved=self._pool.moved,
        )  # fmt: skip


async def run(context: Context) -> None:
    """The rollout gateway: OpenAI-compatible model endpoint, environments' leases, routing to cells."""
    config, clock, folder = context.config, context.clock, context.folder
    model_dir = folder.model if folder.model.exists() else Path(config.model.path)
    model = Model(ChatTemplate.load(model_dir))
    bus = await context.bus("gateway")
    restored = await restore(bus)
    cells = [cell_id(index) for index in serving(config.scheduler)]
    addresses = {cell: folder.endpoint(cell) for cell in cells}
    index = context.arguments.gateway
    suffix = f"-{index}" if index else ""
    address, name = folder.endpoint(f"gateway{suffix}"), f"{context.name}{suffix}"
    settings = config.rollout
    peers = Peers(bus, clock, name, address, settings.lease_s, restored.holders) if settings.gateways > 1 else None
    pool = CellPool(Routing(cells, config.scheduler.cell_capacity), addresses, context.service_key, clock)
    calls = ModelCalls(config, model, pool, bus, clock, restored.attempts, peers)
    call_roles = CallRoles(config, bus, clock)
    calls.on_restored = call_roles.restore
    if peers is None:  # else each is restored where it is asked for
        for sample, records in restored.sessions():
            calls.restore(sample, records)
    secret = key_files.keep(folder.keys / SECRET_NAME)
    environments = Environments()
    leasing = Leasing(config, bus, clock, secret, f"http://{address}/v1", restored, calls, environments, name, peers)
    environments.listener = leasing
    calls.on_budget = Budgets(leasing, environments).over
    commands = Commands(restored.orders, leasing, calls, bus, clock, restored.sequence)
    roles = Roles(pool, bus, clock)
    http = HttpGateway(calls, call_roles, secret, settings.request_bytes_max, settings.context_max, settings.streams)
    rpc = context.rpc_server(f"rollout{suffix}")
    rpc.add(
        environments_pb2_grpc.add_EnvironmentServiceServicer_to_server,
        environments,
        "gyre.api.rollout.v1.EnvironmentService",
    )
    rpc.add(
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server,
        _State(calls, pool, leasing),
        "gyre.api.rollout.v1.RolloutService",
    )
    working = [
        roles.follow(),
        leasing.claim(),
        leasing.watch.look_on(),
        leasing.watch.sign_on(),
        commands.follow(),
        commands.retry(),
    ]
    working.append(CellReports(pool, bus, clock, config.scheduler.cell_capacity, roles.returning).run())
    if peers is not None:
        working = [
            peers.run(),
            peers.follow(leasing.book, restored, calls.over, leasing.stopped, restored.sequence),
            *working,
        ]
    _settle()
    try:
        await until_stopped(context, _serve(http, address, rpc, peers), *working)
    finally:
        if peers is not None:
            await peers.leave()
        await http.stop()
        await rpc.stop()
        await pool.close()
        await bus.close()


def _settle() -> None:
    """What is there before the first call stays, and the collector need not look at it again: a look at everything holds up all calls, for a tenth of
    a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MAX, 10, 10)
    with contextlib.suppress(OSError, AttributeError):  # another C library has its own way
        set_option = ctypes.CDLL(None).mallopt
        set_option(_MMAP_THRESHOLD, BUFFER_BYTES_MAX)
        set_option(_TRIM_THRESHOLD, FREE_BYTES_MAX)


async def _serve(http: HttpGateway, address: str, rpc: RpcServer, peers: Peers | None) -> None:
    """Answers once the other gateways are known; for ever."""
    if peers is not None:
        await peers.ready()
    await http.start(address)
    await rpc.start()
    await asyncio.Event().wait()


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gateway", type=int, default=0, help="which of the run's rollout.gateways it is, from 0")
