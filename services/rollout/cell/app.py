"""The cell process: an engine, its service, its role."""

import asyncio
from pathlib import Path

from gyre.api.rollout.v1 import cells_pb2_grpc
from gyre.ids import cell_id
from gyre.service import Context, until_stopped
from services.rollout.cell.bridge import Bridge
from services.rollout.cell.roles import CellRoles
from services.rollout.cell.servicer import CellServicer
from services.rollout.engine import Engine


async def run(context: Context) -> None:
    """The rollout process of one cell; it starts empty and loads weights when its role says so."""
    config, folder = context.config, context.folder
    assert context.cell is not None
    cell = cell_id(context.cell)
    model_dir = folder.model if folder.model.exists() else Path(config.model.path)
    rollout = config.rollout
    engine = await asyncio.to_thread(
        Engine, str(model_dir), rollout.slots, rollout.context_max, device=rollout.device, threads=rollout.threads
    )
    await asyncio.to_thread(engine.unload)
    bus = await context.bus("cell")
    servicer = CellServicer(engine, Bridge(asyncio.get_running_loop()))
    roles = CellRoles(cell, engine, servicer, bus, context.clock, model_dir, folder.root)
    rpc = context.rpc_server(cell)
    rpc.add(cells_pb2_grpc.add_CellServiceServicer_to_server, servicer, "gyre.api.rollout.v1.CellService")
    try:
        await rpc.start()
        await until_stopped(context, roles.follow(), roles.act())
    finally:
        servicer.is_serving = False
        await asyncio.to_thread(engine.drain)
        await rpc.stop()
        await asyncio.to_thread(engine.close)
        await bus.close()
