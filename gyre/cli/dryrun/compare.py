"""Runs the variants one after the other on the real services, and asks the simulator about each."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gyre.bus import Bus
from gyre.cli.dryrun import model
from gyre.cli.dryrun.configure import Variant, emulated
from gyre.cli.dryrun.measure import Timeline, compared, measured
from gyre.cli.dryrun.predict import predicted_h
from gyre.cli.dryrun.processes import emulated_stages
from gyre.cli.training.drive import Driver
from gyre.cli.training.progress import FOLLOWS
from gyre.cli.training.summary import staleness_law
from gyre.config import Config
from gyre.errors import GyreError
from gyre.run_folder import RunFolder

LINE_EVERY_S = 10.0
Say = Callable[[str], None]


class EmulatedDriver(Driver):
    """The driver of `gyre train`, over emulated processes; notes when what happened."""

    def __init__(self, config: Config, folder: RunFolder, say: Say) -> None:
        super().__init__(config, folder, say, emulated_stages)
        self.timeline = Timeline()

    async def _follow(self, bus: Bus) -> None:
        async for fact, _ in bus.follow(FOLLOWS):
            self.timeline.apply(fact)
            self.progress.apply(fact)
            self._changed.set()
            self.begun.set()


async def compare(variants: list[Variant], folder: Path, say: Say) -> dict[str, Any]:
    """Runs them all; the result also lies in `folder`/dry-run.json. Raises GyreError."""
    rows = []
    for number, variant in enumerate(variants, 1):
        say(f"{variant.name}: {number} of {len(variants)}, {described(variant.config)}")
        row = await _run(variant, folder / variant.name, say)
        rows.append(row)
        said = f"{variant.name}: {row['wall_h']:.2f} h of the workload in {row['measured_s']:.0f} s"
        if row["simulated_h"] is not None:
            said += f"; the simulator says {row['simulated_h']:.2f} h, {row['error']:+.1%}"
        say(said)
    first = variants[0].config
    return {
        "time_scale": first.emulation.time_scale,
        "steps": first.run.steps,
        "staleness_law": staleness_law(first),
        **compared(rows),
        "variants": rows,
    }


async def _run(variant: Variant, root: Path, say: Say) -> dict[str, Any]:
    folder = RunFolder(root)
    folder.make()
    config = emulated(variant.config, model.make(root.parent / "emulated-model"))
    driver = EmulatedDriver(config, folder, lambda _: None)
    telling = asyncio.create_task(_tell(driver, variant.name, say))
    try:
        summary = await driver.run()
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
    row = {"name": variant.name, "role": variant.role} | measured(driver.timeline, driver.progress, config)
    row["audit"] = [name for name, passed in summary["audit"].items() if not passed]
    row["simulated_h"], row["error"] = None, None
    try:
        simulated_h = await predicted_h(variant.config, root)
    except GyreError as error:
        say(f"{variant.name}: no word of the simulator: {error}")
    else:
        row["simulated_h"], row["error"] = round(simulated_h, 4), round(row["wall_h"] / simulated_h - 1, 4)
    return row


async def _tell(driver: EmulatedDriver, name: str, say: Say) -> None:
    """One line every few seconds while there is something new."""
    last = ""
    while True:
        await asyncio.sleep(LINE_EVERY_S)
        if driver.progress.facts and (line := driver.view.line()) != last:
            say(f"{name}: {line}")
            last = line


def described(config: Config) -> str:
    """The knobs of one configuration in a line."""
    given = config.scheduler
    split = f", {given.training_cells}/{given.standalone_cells} cells" if given.mode == "async" else ""
    split = f", {given.standalone_cells} standalone" if not split and given.standalone_cells else split
    streaming = "streaming" if given.streaming else "whole batches"
    return f"{given.mode}, {streaming}{split}, μ {given.steps_per_publish}, φ {given.extra_depth_steps:g}"
