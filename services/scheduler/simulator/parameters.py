"""The calibration's free parameters: all of them, with their ranges. What is not here is given by the paper or derived.

17 parameters stand against 14 observations (observations.py), so a good fit shows that the model *can* be like the paper's cluster and
identifies nothing.

Given: 32 nodes, 8 × 4 and 4 × 8 cells, 4 standalone nodes in C1 and C2, wall limit 4 h, role changes 8.52 s and 3.46 s, μ = 1 in E1, equal mean
staleness in all rows, hence every φ. Assumed, and not searched: an eviction costs 30 s, a publish nothing, environments wait inside the work, cells
that return take over nothing that runs (which hardly changes any row).
"""

import json
import math
import random
from typing import Any

import msgspec

from gyre.errors import InvalidInput
from services.scheduler.simulator.rows import Calibration

Point = dict[str, float | int | str | bool]


class Parameter(msgspec.Struct, frozen=True):
    """One free choice: a range, or a list of possibilities in order."""

    name: str
    low: float = 0.0
    high: float = 0.0
    options: tuple[Any, ...] = ()
    is_log: bool = False

    def draw(self, rng: random.Random) -> Any:
        if self.options:
            return rng.choice(self.options)
        return (
            math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
            if self.is_log
            else rng.uniform(self.low, self.high)
        )

    def near(self, value: Any, spread: float, rng: random.Random) -> Any:
        """A neighbour: a step along the options, or a normal step of `spread` of the range, kept inside."""
        if self.options:
            index = self.options.index(value) + rng.choice((-1, 1))
            return self.options[min(max(index, 0), len(self.options) - 1)]
        if self.is_log:
            step = rng.gauss(0.0, spread * math.log(self.high / self.low))
            return min(max(value * math.exp(step), self.low), self.high)
        return min(max(value + rng.gauss(0.0, spread * (self.high - self.low)), self.low), self.high)


PARAMETERS: tuple[Parameter, ...] = (
    Parameter("staleness_steps", 0.5, 4.0),
    Parameter("group_size", options=(4, 6, 8, 10, 12, 14, 16)),
    Parameter("groups_per_step", options=tuple(range(3, 17))),
    Parameter("slots_per_node", 3.0, 16.0, is_log=True),
    Parameter("family", options=("hyperbolic", "knee")),
    Parameter("slowdown", 0.05, 3.0, is_log=True),
    Parameter("power", 0.2, 1.0),
    Parameter("median_h", 0.6, 2.0, is_log=True),
    Parameter("sigma", 0.2, 0.9),
    Parameter("group_share", 0.0, 0.8),
    Parameter("group_node_h", 0.5, 12.0, is_log=True),
    Parameter("elastic_burst", options=tuple(range(2, 9))),
    Parameter("async_burst", options=tuple(range(1, 7))),
    Parameter("async_long_burst", options=tuple(range(2, 10))),
    Parameter("async_training_nodes", options=tuple(range(4, 23))),
    Parameter("async_fewer_training_nodes", options=tuple(range(2, 19))),
    Parameter("colocate_burst", options=tuple(range(1, 8))),
    Parameter("more_standalone_nodes", options=tuple(range(5, 25))),
)
"""`slowdown` is the hyperbola's and, in thirds, the other family's knee; `power` is spare in the hyperbola. Counted as one less."""
NUM_FREE = len(PARAMETERS) - 1
CHOICES = (
    "elastic_burst", "async_burst", "async_long_burst", "async_training_nodes", "async_fewer_training_nodes", "colocate_burst",
    "more_standalone_nodes",
)  # fmt: skip


def is_possible(point: Point) -> bool:
    """φ = s − (μ − 1)/2 ≥ 0 in every row, A2's burst is longer than A0's, A1 has fewer training nodes."""
    longest = 2 * point["staleness_steps"] + 1
    bursts = [point[name] for name in ("elastic_burst", "async_burst", "async_long_burst", "colocate_burst")]
    return (
        max(bursts) <= longest and point["async_long_burst"] > point["async_burst"]
        and point["async_fewer_training_nodes"] < point["async_training_nodes"] and point["group_size"] <= 4 * point["slots_per_node"]
        and point["elastic_burst"] > 1
    )  # fmt: skip


def fixed(text: str) -> Point:
    """`NAME=VALUE,…`: parameters that a search leaves alone. Raises InvalidInput."""
    known = {parameter.name: parameter for parameter in PARAMETERS}
    found: Point = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name not in known:
            raise InvalidInput(f"there is no parameter {name!r}; there are {', '.join(known)}")
        found[name] = value if name == "family" else json.loads(value)
    return found


def draw(rng: random.Random, given: Point | None = None) -> Point:
    """A possible point; `given` is not free."""
    while True:
        point = {parameter.name: parameter.draw(rng) for parameter in PARAMETERS} | (given or {})
        if is_possible(point):
            return point


def near(point: Point, spread: float, rng: random.Random, given: Point | None = None, changes: int = 3) -> Point:
    """A possible neighbour in a few of the parameters that are free."""
    free = [parameter for parameter in PARAMETERS if parameter.name not in (given or {})]
    while True:
        moved = dict(point)
        for parameter in rng.sample(free, rng.randint(1, changes)):
            moved[parameter.name] = parameter.near(moved[parameter.name], spread, rng)
        if moved != point and is_possible(moved):
            return moved


def calibration_of(point: Point, name: str = "fitted", fit: dict[str, Any] | None = None) -> Calibration:
    """The calibration that a point stands for."""
    speed: dict[str, Any] = {"family": point["family"]}
    if point["family"] == "hyperbolic":
        speed["slowdown"] = point["slowdown"]
    else:
        speed |= {"knee": point["slowdown"] / 3.0, "power": point["power"]}
    return Calibration(
        name=name, staleness_steps=point["staleness_steps"], choices={choice: int(point[choice]) for choice in CHOICES},
        base={
            "cluster": {"slots_per_node": point["slots_per_node"], "speed": speed},
            "workload": {key: point[key] for key in ("median_h", "sigma", "group_share")},
            "training": {"group_node_h": point["group_node_h"]},
            "scheduler": {key: point[key] for key in ("group_size", "groups_per_step")},
        },
        fit=fit or {},
    )  # fmt: skip


def point_of(chosen: Calibration) -> Point:
    """The reverse, to go on from a calibration."""
    cluster, speed = chosen.base["cluster"], chosen.base["cluster"]["speed"]
    is_knee = speed.get("family", "hyperbolic") == "knee"
    return {
        "staleness_steps": chosen.staleness_steps, "slots_per_node": cluster["slots_per_node"],
        "family": "knee" if is_knee else "hyperbolic", "slowdown": 3.0 * speed["knee"] if is_knee else speed["slowdown"],
        "power": speed.get("power", 0.8), **chosen.base["workload"], **chosen.base["training"], **chosen.base["scheduler"], **chosen.choices,
    }  # fmt: skip
