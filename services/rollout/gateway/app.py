"""The gateway process: restore, listen, follow."""

import os
import secrets
from pathlib import Path

from gyre.api.rollout.v1 import environments_pb2_grpc, rollout_pb2, rollout_pb2_grpc
from gyre.config.cells import serving
from gyre.ids import cell_id
from gyre.service import Context, until_stopped
from services.rollout.core.routing import Routing
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate
from services.rollout.gateway.callroles import CallRoles
from services.rollout.gateway.calls import ModelCalls
from services.rollout.gateway.commands import Commands
from services.rollout.gateway.environments import Environments
from services.rollout.gateway.http import HttpGateway
from services.rollout.gateway.leasing import Leasing
from services.rollout.gateway.pool import CellPool
from services.rollout.gateway.reports import CellReports
from services.rollout.gateway.restore import restore
from services.rollout.gateway.roles import Roles

SECRET_NAME = "gateway.secret"
"""In the run's keys folder: signs the keys of executions, so that a gateway that started anew accepts them."""


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
    pool = CellPool(Routing(cells, config.scheduler.cell_capacity), addresses, context.service_key, clock)
    calls = ModelCalls(config, model, pool, bus, clock, restored.attempts)
    for session in restored.sessions(model):
        calls.restore(session)
    secret = read_secret(folder.keys / SECRET_NAME)
    environments = Environments()
    address = folder.endpoint("gateway")
    leasing = Leasing(config, bus, clock, secret, f"http://{address}/v1", restored, calls, environments, context.name)
    environments.listener = leasing
    commands = Commands(restored.orders, leasing, calls, bus, clock, restored.sequence)
    roles = Roles(pool, bus, clock)
    call_roles = CallRoles(config, bus, clock)
    settings = config.rollout
    http = HttpGateway(calls, call_roles, secret, settings.request_bytes_max, settings.context_max, settings.streams)
    rpc = context.rpc_server("rollout")
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
    try:
        await http.start(address)
        await rpc.start()
        await until_stopped(
            context, roles.follow(), leasing.claim(), leasing.tick(), commands.follow(), commands.retry(),
            CellReports(pool, bus, clock, config.scheduler.cell_capacity, roles.returning).run(),
        )  # fmt: skip
    finally:
        await http.stop()
        await rpc.stop()
        await pool.close()
        await bus.close()


def read_secret(path: Path) -> bytes:
    """Made on first start, readable by its owner only."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(data := secrets.token_bytes(32))
    return data
