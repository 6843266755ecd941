"""The trainer process of one cell: cell 0 is the core, every other a satellite (A1, A2)."""

from pathlib import Path

from gyre.config import Config, cells
from gyre.errors import ConfigError
from gyre.ids import cell_id
from gyre.run_folder import RunFolder
from gyre.service import Context
from gyre.token_log import TokenLog
from services.trainer.compute import Compute
from services.trainer.core_cell import CoreCell
from services.trainer.learner import Learner
from services.trainer.model import Policy, check_device
from services.trainer.satellite_cell import SatelliteCell

CORE = 0


async def run(context: Context) -> None:
    """Until told to stop. Raises ConfigError for a cell or model that the configuration does not have."""
    scheduler = context.config.scheduler
    if not cells.trains(scheduler, context.cell):
        raise ConfigError(
            f"cell {context.cell} has no trainer: scheduler.cells is {scheduler.cells}, the last {scheduler.standalone_cells} never train"
        )
    check_device(context.config.trainer.device)
    directory = model_directory(context.folder, context.config)
    policy = Policy(directory)
    name = cell_id(context.cell)
    tokens = TokenLog(context.folder.tokens, name) if context.config.trainer.token_log else None
    compute = Compute(name, policy, context.config.trainer, context.clock, tokens)
    bus = await context.bus("trainer")
    try:
        if context.cell == CORE:
            learner = await compute.run(Learner, context.folder, context.config, policy, context.clock)
            await CoreCell(context, bus, compute, learner).run()
        else:
            await SatelliteCell(context, bus, compute).run()
    finally:
        compute.close()
        await bus.close()


def model_directory(folder: RunFolder, config: Config) -> Path:
    """Version 0: what a recipe or warm start put into the run's folder, else the configured directory."""
    return folder.model if (folder.model / "config.json").exists() else Path(config.model.path)
