"""The cell process: an engine, its service, its role."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from gyre.api.rollout.v1 import cells_pb2_grpc
from gyre.config import cells
from gyre.errors import ConfigError
from gyre.ids import cell_id
from gyre.service import Context, until_stopped
from services.rollout.cell.bridge import Bridge
from services.rollout.cell.roles import CellRoles
from services.rollout.cell.servicer import CellServicer

if TYPE_CHECKING:
    from services.rollout.engine import Engine


async def run(context: Context) -> None:
    """The rollout process of one cell; it starts empty and loads weights when its role says so."""
    from services.rollout.engine import Engine

    scheduler = context.config.scheduler
    if not cells.serves(scheduler, context.cell):
        raise ConfigError(
            f"cell {context.cell} has no rollout: scheduler.cells is {scheduler.cells}, the first {scheduler.training_cells} always train"
        )
    rollout, model_dir = context.config.rollout, model_directory(context)
    engine = await asyncio.to_thread(
        Engine, str(model_dir), rollout.slots, rollout.context_max, device=rollout.device, threads=rollout.threads
    )
    await asyncio.to_thread(engine.unload)
    await serve(context, engine, model_dir)


def model_directory(context: Context) -> Path:
    """Version 0: what a recipe or warm start put into the run's folder, else the configured directory."""
    folder = context.folder
    return folder.model if folder.model.exists() else Path(context.config.model.path)


async def serve(context: Context, engine: "Engine", model_dir: Path) -> None:
    """Cell `context.cell` over an engine without weights, until told to stop; closes the engine."""
    folder = context.folder
    assert context.cell is not None
    cell = cell_id(context.cell)
    bus = await context.bus("cell")
    servicer = CellServicer(engine, Bridge(asyncio.get_running_loop()))
    has_trainer = cells.trains(context.config.scheduler, context.cell)
    roles = CellRoles(cell, engine, servicer, bus, context.clock, model_dir, folder.root, has_trainer)
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
