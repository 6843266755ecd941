"""Small specifications whose answers can be worked out by hand."""

from typing import Any

from services.scheduler.simulator import Spec, merged, parse

PLAIN: dict[str, Any] = {
    "cluster": {"nodes_per_cell": 1, "slots_per_node": 4.0, "speed": {"slowdown": 0.0}, "eviction_s": 0.0},
    "workload": {"median_h": 1.0, "sigma": 0.0},
    "training": {"group_node_h": 0.5},
    "scheduler": {
        "mode": "colocate", "cells": 1, "group_size": 2, "groups_per_step": 2, "steps_per_publish": 1, "extra_depth_steps": 0.0, "streaming": False,
    },
    "horizon": {"first_steps": 4, "warmup_steps": 0, "steady_steps": 0},
}  # fmt: skip
"""One node that does both in turn: four executions of an hour a step, which it holds at once, and half an hour of training for each of two groups."""


def spec(**changes: Any) -> Spec:
    return parse(merged(PLAIN, changes))


def two_cells(trainers: int = 1, servers: int = 1, **changes: Any) -> Spec:
    """A fixed split."""
    split = {
        "cluster": {"cell_nodes": [trainers, servers]},
        "scheduler": {"mode": "async", "cells": 2, "training_cells": 1, "standalone_cells": 1},
    }
    return parse(merged(merged(PLAIN, split), changes))


def cluster(mode: str, **changes: Any) -> Spec:
    """Eight nodes, random durations, slots that bind, in one of the modes."""
    shapes = {
        "async": {
            "cluster": {"cell_nodes": [2, 6]},
            "scheduler": {"cells": 2, "training_cells": 1, "standalone_cells": 1},
        },
        "hybrid_switch": {"cluster": {"cell_nodes": [4, 4]}, "scheduler": {"cells": 2, "standalone_cells": 1}},
        "elastic_plus": {"cluster": {"rebalance": True}, "scheduler": {"plan_every_bursts": 0}},
        "colocate": {"cluster": {"cell_nodes": [6, 2]}, "scheduler": {"cells": 2, "standalone_cells": 1}},
    }
    tree = {
        "cluster": {"nodes_per_cell": 2, "speed": {"slowdown": 0.5}, "eviction_s": 30.0},
        "workload": {"sigma": 0.7},
        "training": {"group_node_h": 0.8},
        "scheduler": {
            "mode": mode,
            "cells": 4,
            "groups_per_step": 4,
            "group_size": 4,
            "steps_per_publish": 2,
            "streaming": True,
        },
        "horizon": {"first_steps": 12, "warmup_steps": 12, "steady_steps": 60},
    }
    return parse(merged(merged(merged(PLAIN, tree), shapes.get(mode, {})), changes))
