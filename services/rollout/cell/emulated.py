"""`python -m services.rollout.cell.emulated --run DIR`: all cells of a dry run in one process, each over an engine that only waits."""

import asyncio

from gyre.config.cells import serving
from gyre.service import Context, main
from services.rollout.cell.app import model_directory, serve
from services.rollout.engine.emulated import EmulatedEngine


async def run(context: Context) -> None:
    """The rollout side of every cell, emulated."""
    config = context.config
    async with asyncio.TaskGroup() as cells:
        for index in serving(config.scheduler):
            of_cell = Context(f"cell-{index}", context.folder, index, context.arguments)
            of_cell.stopping = context.stopping
            directory = model_directory(of_cell)
            cells.create_task(
                serve(of_cell, EmulatedEngine(directory, config.rollout.slots, config.emulation), directory)
            )


if __name__ == "__main__":
    main("rollout.cell.emulated", run)
