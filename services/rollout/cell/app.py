"""The cell process: an engine, its service, its role."""

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from gyre.api.rollout.v1 import cells_pb2_grpc
from gyre.config import cells
from gyre.errors import ConfigError
from gyre.ids import cell_id
from gyre.rpc import MESSAGE_BYTES_MAX
from gyre.service import Context, until_stopped
from services.rollout.cell.bridge import Bridge
from services.rollout.cell.roles import CellRoles
from services.rollout.cell.servicer import CellServicer

if TYPE_CHECKING:
    from services.rollout.engine import Engine
    from services.rollout.engine.vllm.engine import VllmEngine


async def run(context: Context) -> None:
    """The rollout process of one cell; it starts empty and loads weights when its role says so."""
    scheduler = context.config.scheduler
    if not cells.serves(scheduler, context.cell):
        raise ConfigError(
            f"cell {context.cell} has no rollout: scheduler.cells is {scheduler.cells}, the first {scheduler.training_cells} always train"
        )
    model_dir = model_directory(context)
    make = _vllm if context.config.rollout.engine == "vllm" else _embedded
    await serve(context, await asyncio.to_thread(make, context, model_dir), model_dir)


def _embedded(context: Context, model_dir: Path) -> "Engine":
    from services.rollout.engine import Engine

    rollout = context.config.rollout
    engine = Engine(str(model_dir), rollout.slots, rollout.context_max, device=rollout.device, threads=rollout.threads)
    engine.unload()
    return engine


def _vllm(context: Context, model_dir: Path) -> "VllmEngine":
    from services.rollout.engine.vllm.engine import VllmEngine
    from services.rollout.engine.vllm.process import VllmProcess

    rollout = context.config.rollout
    if shutil.which(rollout.vllm.python) is None:
        raise ConfigError(
            f"rollout.vllm.python is `{rollout.vllm.python}`, which cannot be run from {Path.cwd()}; `make setup-vllm` makes "
            "build/vllm/bin/python, on a GPU machine install vLLM in an environment of its own (docs/vllm.md)"
        )
    log_file = context.folder.logs / f"vllm-{context.cell}.log"
    process = VllmProcess(
        model_dir, rollout.slots, rollout.context_max, rollout.vllm, rollout.device, rollout.threads, log_file
    )
    return VllmEngine(model_dir, rollout.slots, rollout.context_max, rollout.vllm, process)


def model_directory(context: Context) -> Path:
    """Version 0: what a recipe or warm start put into the run's folder, else the configured directory."""
    folder = context.folder
    return folder.model if folder.model.exists() else Path(context.config.model.path)


async def serve(context: Context, engine: "Engine | VllmEngine", model_dir: Path) -> None:
    """Cell `context.cell` over an engine without weights, until told to stop; closes the engine."""
    folder = context.folder
    assert context.cell is not None
    cell = cell_id(context.cell)
    bus = await context.bus("cell")
    servicer = CellServicer(engine, Bridge(asyncio.get_running_loop()))
    has_trainer = cells.trains(context.config.scheduler, context.cell)
    roles = CellRoles(cell, engine, servicer, bus, context.clock, model_dir, folder.root, has_trainer)
    rpc = context.rpc_server(cell, MESSAGE_BYTES_MAX)  # prompts of a gateway, which is one of us
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
