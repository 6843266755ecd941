"""What a storm is about: any mode, with and without streaming, standalone cells, plans, caps; small numbers."""

import random

from gyre.config import TierConfig
from services.scheduler.core import Settings

MODES = (
    {"mode": "elastic"}, {"mode": "elastic", "standalone_cells": 1}, {"mode": "elastic", "streaming": False},
    {"mode": "elastic_plus", "is_two_way": True}, {"mode": "elastic_plus", "is_two_way": True, "streaming": False},
    {"mode": "elastic_plus", "standalone_cells": 1}, {"mode": "async", "training_cells": 1},
    {"mode": "async", "training_cells": 1, "streaming": False}, {"mode": "colocate"}, {"mode": "colocate", "streaming": False},
    {"mode": "colocate", "standalone_cells": 1}, {"mode": "hybrid_switch", "standalone_cells": 1}, {"mode": "hybrid_switch"},
    {"mode": "hybrid_switch", "streaming": False},
)  # fmt: skip


def random_settings(rng: random.Random) -> Settings:
    """Any mode, small numbers."""
    cap = rng.choice((4, 1000))
    return Settings(
        cells=rng.randint(2, 4), cell_capacity=rng.randint(1, 6), groups_per_step=rng.randint(1, 4), steps_per_publish=rng.randint(1, 3),
        extra_depth_steps=rng.choice((0.0, 0.5, 1.0, 2.0)), dispatch=rng.choice(("boundary", "boundary", "continuous")),
        tiers=(TierConfig(name="short", concurrency_max=cap), TierConfig(name="long")), aging_s=20.0, release_share=rng.choice((1.0, 0.7)),
        **rng.choice(MODES),
    )  # fmt: skip
