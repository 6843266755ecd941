"""What the rollout process of a cell does when roles change and weights are published (A1, A6).

| last fact of the cell | what is done |
|---|---|
| training: drained | weights and KV cache freed, `unloaded` |
| rollout: released | newest published weights loaded, `loaded` |
| rollout: loaded, serving | loaded (a process that started anew), calls accepted |
| anything else | nothing loaded, calls refused |

Of a cell that never trains there is no trainer to say `released`: there `requested` stands for it.
"""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from gyre.bus import Bus
from gyre.clock import Clock
from gyre.errors import GyreError
from gyre.records import AlarmRaised, RoleChanged, WeightsPublished
from services.rollout.cell.servicer import CellServicer

if TYPE_CHECKING:
    from services.rollout.engine import Engine

log = logging.getLogger(__name__)


class CellRoles:
    """Follows the facts; one thing is done at a time, always by the newest facts."""

    def __init__(
        self, cell: str, engine: "Engine", servicer: CellServicer, bus: Bus, clock: Clock, model_dir: Path, run_root: Path,
        has_trainer: bool = True,
    ) -> None:  # fmt: skip
        self._cell = cell
        self._engine = engine
        self._servicer = servicer
        self._bus = bus
        self._clock = clock
        self._model_dir = model_dir
        self._run_root = run_root
        self._released = "released" if has_trainer else "requested"
        """Phase of a change into rollout after which weights are loaded."""
        self._role: RoleChanged | None = None
        self._weights: WeightsPublished | None = None
        self._loaded_version: int | None = None
        self._refused_version = -1
        self._good: WeightsPublished | None = None
        """What was loaded last without fault; None: the model directory, version 0."""
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        """For ever: read facts, note the newest."""
        types = (RoleChanged, WeightsPublished)
        caught_up_at = await self._bus.last_sequence(types)
        async for fact, delivery in self._bus.follow(types):
            if isinstance(fact, WeightsPublished):
                if self._weights is None or fact.version > self._weights.version:
                    self._weights = fact
            elif fact.cell == self._cell and (self._role is None or fact.change >= self._role.change):
                self._role = fact
            if delivery.sequence >= caught_up_at:
                self._changed.set()

    async def act(self) -> None:
        """For ever: bring the engine to where the newest facts want it."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            role = self._role
            if role is None:
                continue
            match (role.target, role.phase):
                case ("training", "requested"):
                    await self._take_newest()
                case ("training", _):
                    await self._unload(role)
                case ("rollout", phase) if phase in (self._released, "loaded", "serving"):
                    await self._load(role)

    async def _unload(self, role: RoleChanged) -> None:
        from_s = self._clock.monotonic_s()
        self._servicer.is_serving = False
        if self._loaded_version is not None:
            await asyncio.to_thread(self._engine.unload)
            self._loaded_version = None
        if role.phase == "drained":
            await self._say(role, "unloaded", from_s)

    async def _load(self, role: RoleChanged) -> None:
        from_s = self._clock.monotonic_s()
        await self._take_newest(load=True)
        if not self._servicer.is_serving and self._role is role:
            self._servicer.is_serving = True
        if role.phase == self._released:
            await self._say(role, "loaded", from_s)

    async def _take_newest(self, load: bool = False) -> None:
        """Newest published weights into the engine; running calls go on. Weights that cannot be taken leave the old ones serving."""
        newest = self._weights
        if newest is not None and newest.version == self._refused_version:
            newest = self._good
        version = newest.version if newest else 0
        if version == self._loaded_version or (self._loaded_version is None and not load):
            return
        source = self._path(newest) if newest else self._model_dir
        checksum = newest.checksum if newest else None
        from_s = self._clock.monotonic_s()
        try:
            await asyncio.to_thread(self._engine.load, source, version, checksum)
        except (GyreError, OSError) as error:
            if newest is None or newest is self._good:
                raise
            await self._alarm(version, error)
            await self._take_newest(load)
            return
        self._loaded_version, self._good = version, newest
        self._servicer.checksum = checksum or ""
        log.info("policy version %d is live after %.3f s", version, self._clock.monotonic_s() - from_s)

    async def _alarm(self, version: int, error: Exception) -> None:
        self._refused_version = version
        log.error("policy version %d is refused: %s", version, error)
        alarm = AlarmRaised(
            kind="weights", message=f"{self._cell}: policy version {version} is refused, older weights serve: {error}"[:2000],
            service=self._cell, at_s=self._clock.now_s(), values={"version": float(version)},
        )  # fmt: skip
        await self._bus.publish(alarm)

    def _path(self, weights: WeightsPublished) -> Path:
        """Published paths are absolute or relative to the run's folder."""
        path = Path(weights.path)
        return path if path.is_absolute() else self._run_root / path

    async def _say(self, role: RoleChanged, phase: str, from_s: float) -> None:
        record = RoleChanged(
            cell=self._cell, change=role.change, target=role.target, phase=phase, at_s=self._clock.now_s(),
            duration_s=self._clock.monotonic_s() - from_s, burst=role.burst,
        )  # fmt: skip
        await self._bus.publish(record)
