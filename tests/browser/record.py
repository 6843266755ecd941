"""Record a real run with the planted fault: `python -m tests.browser.record FOLDER [--model DIR]`; about two minutes on two quiet cores.

Three cells, fixed split: cell 0 trains, 1 and 2 sample, and cell 1 stops taking new weights (tests/browser/fault). Without --model one is
warm-started.
"""

import argparse
import asyncio
import os
from pathlib import Path

from tests.slow.support import CONFIG, Train

STEPS = 14
SETTINGS = {
    "run.name": "planted", "run.steps": STEPS, "scheduler.mode": "async", "scheduler.cells": 3, "scheduler.training_cells": 1,
    "scheduler.standalone_cells": 2, "scheduler.steps_per_publish": 1, "scheduler.extra_depth_steps": 1.0, "scheduler.groups_per_step": 4,
    "scheduler.group_size": 4, "scheduler.cell_capacity": 16, "rollout.slots": 16, "trajproc.turns_per_step": 60, "evaluation.tasks": 8,
}  # fmt: skip
FAULT = Path(__file__).parent / "fault"
RUN_S_MAX = 900.0


async def record(folder: Path, model: Path) -> dict:
    """The summary of the finished run."""
    paths = [str(FAULT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    async with Train(folder, model, SETTINGS, CONFIG, {}) as run:
        return await run.finish(RUN_S_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    model = given.model or warm_started(given.folder.with_name("model"))
    asyncio.run(record(given.folder, model))


def warm_started(folder: Path) -> Path:
    from gyre.cli.options import load_config
    from gyre.cli.training.model import prepare
    from gyre.run_folder import RunFolder
    from tests.slow.conftest import OVERRIDES

    made = RunFolder(folder)
    made.make()
    return asyncio.run(prepare(load_config(CONFIG, OVERRIDES), made, print))


if __name__ == "__main__":
    main()
