"""Runs the variants on the real services, one after the other or a few at once, and asks the simulator about each."""

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
from gyre.config import Config
from gyre.config.staleness import law_steps
from gyre.errors import GyreError
from gyre.run_folder import RunFolder
from gyre.tasks import end

LINE_EVERY_S = 10.0
Say = Callable[[str], None]


class EmulatedDriver(Driver):
    """The driver of `gyre train`, over emulated processes; notes when what happened."""

    def __init__(self, config: Config, folder: RunFolder, say: Say, gate: asyncio.Barrier) -> None:
        """Training begins when all that run at once are up, so that nobody's start disturbs another's measurement."""
        super().__init__(config, folder, say, emulated_stages)
        self.timeline = Timeline()
        self._gate = gate

    async def _train(self, scheduler: Any) -> None:
        await self._gate.wait()
        await super()._train(scheduler)

    async def _follow(self, bus: Bus) -> None:
        async for fact, _ in bus.follow(FOLLOWS):
            self.timeline.apply(fact)
            self.progress.apply(fact)
            self._changed.set()
            self.begun.set()


async def compare(variants: list[Variant], folder: Path, say: Say) -> dict[str, Any]:
    """Runs them all, `variants_at_once` side by side; the rows are in their order. Raises GyreError."""
    first = variants[0].config
    model_dir = model.make(folder / "emulated-model")
    rows: list[dict[str, Any]] = []
    at_once = first.emulation.variants_at_once
    for start in range(0, len(variants), at_once):
        rows += await _together(variants[start : start + at_once], folder, model_dir, say)
    for row, variant in zip(rows, variants, strict=True):
        await _predict(row, variant, folder / variant.name, say)
    return {
        "time_scale": first.emulation.time_scale,
        "steps": first.run.steps,
        "staleness_law": law_steps(first.scheduler),
        **compared(rows),
        "variants": rows,
    }


async def _together(batch: list[Variant], folder: Path, model_dir: Path, say: Say) -> list[dict[str, Any]]:
    """When one fails the others are stopped in order. Raises its GyreError."""
    gate = asyncio.Barrier(len(batch))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run(variant, folder / variant.name, model_dir, say, gate)) for variant in batch]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _run(variant: Variant, root: Path, model_dir: Path, say: Say, gate: asyncio.Barrier) -> dict[str, Any]:
    say(f"{variant.name}: {described(variant.config)}")
    folder = RunFolder(root)
    folder.make()
    config = emulated(variant.config, model_dir)
    driver = EmulatedDriver(config, folder, lambda _: None, gate)
    telling = asyncio.create_task(_tell(driver, variant.name, say))
    try:
        summary = await driver.run()
    finally:
        await end(telling)
    row = {"name": variant.name, "role": variant.role} | measured(driver.timeline, driver.progress, config)
    row["audit"] = [name for name, passed in summary["audit"].items() if not passed]
    say(f"{variant.name}: {row['wall_h']:.2f} h of the workload in {row['measured_s']:.0f} s")
    return row


async def _predict(row: dict[str, Any], variant: Variant, root: Path, say: Say) -> None:
    row["simulated_h"], row["error"] = None, None
    try:
        simulated_h = await predicted_h(variant.config, root)
    except GyreError as error:
        say(f"{variant.name}: no word of the simulator: {error}")
        return
    row["simulated_h"], row["error"] = round(simulated_h, 4), round(row["wall_h"] / simulated_h - 1, 4)
    say(f"{variant.name}: the simulator says {simulated_h:.2f} h, {row['error']:+.1%}")


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
