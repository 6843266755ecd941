"""Where the node-hours of a simulated run go: what the lower bound counts, and what is lost beside it, by its cause.

The bound counts training and decoding at a full cell's rate. A serving cell that is not full decodes less than it could: nothing else was there for
it (no group ready), or it was kept beside trainers because a cell is not divided.
"""

from collections import Counter

from services.scheduler.simulator import Spec
from services.scheduler.simulator.run import window
from services.scheduler.simulator.world import World

RAMP, BETWEEN, BESIDE = "serving_ramp", "serving_nothing_ready", "serving_beside_training"
"""A cell that serves below its full rate: since the boundary no group of the burst has been trained; later, with nothing ready; while trainers have
work."""


def accounted(spec: Spec, seed: int) -> dict[str, float]:
    """Shares of the steady window's node-seconds, which are 1 together: `training`, `decoding` (at a full cell's rate), `trainers_wait`,
    `role_change`, and what serving cells leave unused by cause."""
    world = World(spec, seed)
    start, end = window(spec)
    world.until_step(start)
    before, found = world.totals(), Counter()
    begun = _Burst()
    while world.training.step < end:
        begun.follow(world)
        standing = [(cell.nodes, cell.is_serving, cell.is_training, cell.used[cell.num]) for cell in world.cells]
        cause, at_s = _cause(world, begun), world.events.now_s
        world.next_event()
        passed_s = world.events.now_s - at_s
        for nodes, is_serving, is_training, used in standing:
            if is_serving:
                found[cause] += (nodes - used) * passed_s
            elif not is_training:
                found["role_change"] += nodes * passed_s
    passed = world.totals() - before
    found |= {
        "training": passed.trained_s,
        "decoding": passed.served_s,
        "trainers_wait": passed.trainer_s - passed.trained_s,
    }
    node_s = passed.at_s * spec.nodes
    return {name: found[name] / node_s for name in sorted(found)}


class _Burst:
    """Whether the burst has taken a group yet."""

    def __init__(self) -> None:
        self._ends_at, self._taken = -1, 0
        self.has_taken = False

    def follow(self, world: World) -> None:
        taken = len(world.measures.groups)
        if world.training.publish_at_step != self._ends_at:
            self._ends_at, self._taken = world.training.publish_at_step, taken
        self.has_taken = taken > self._taken


def _cause(world: World, burst: _Burst) -> str:
    if world.training.has_work:
        return BESIDE
    return BETWEEN if burst.has_taken else RAMP
