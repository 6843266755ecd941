"""`python -m tests.harness.cells --run DIR`: all cells of a run in one process, each over a scripted engine that plays DIR/script.json."""

import asyncio

from gyre.config.cells import serving
from gyre.service import Context, main
from services.rollout.cell.app import model_directory, serve
from services.rollout.core.template import ChatTemplate
from tests.harness.scripted import Script, ScriptedEngine


async def run(context: Context) -> None:
    root = context.folder.root
    script = Script(root / "script.json", ChatTemplate.load(model_directory(context)))
    async with asyncio.TaskGroup() as cells:
        for index in serving(context.config.scheduler):
            of_cell = Context(f"cell-{index}", context.folder, index, context.arguments)
            of_cell.stopping = context.stopping
            engine = ScriptedEngine(of_cell.name, script, root / "notes.jsonl")
            cells.create_task(serve(of_cell, engine, model_directory(of_cell)))


if __name__ == "__main__":
    main("rollout.cell.scripted", run)
