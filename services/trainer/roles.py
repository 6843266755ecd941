"""What core and satellite share: following facts, and saying the trainer's phases of a role change (A1, A6)."""

import asyncio
from collections.abc import Callable, Sequence

from gyre.bus import Bus
from gyre.clock import Clock
from gyre.records import Fact, RoleChanged


async def follow(bus: Bus, types: Sequence[type], on_fact: Callable[[Fact], None], caught_up: asyncio.Event) -> None:
    """Every fact in order, for ever; `caught_up` is set when what was there at the start has been folded."""
    newest = await bus.last_sequence(types)
    if newest == 0:
        caught_up.set()
    async for fact, delivery in bus.follow(types):
        on_fact(fact)
        if delivery.sequence >= newest:
            caught_up.set()


class RoleSpeaker:
    """Says each phase once: its own word comes back through the stream only later."""

    def __init__(self, bus: Bus, cell: str, clock: Clock) -> None:
        self._bus = bus
        self._cell = cell
        self._clock = clock
        self._answered = -1

    def is_new(self, role: RoleChanged) -> bool:
        """Whether this role change has not been answered yet."""
        return role.change > self._answered

    async def say(self, role: RoleChanged, phase: str, duration_s: float) -> None:
        fact = RoleChanged(
            cell=self._cell, change=role.change, target=role.target, phase=phase, at_s=self._clock.now_s(),
            duration_s=duration_s, burst=role.burst,
        )  # fmt: skip
        await self._bus.publish(fact)
        self._answered = role.change
