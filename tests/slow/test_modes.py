"""Each scheduling mode through all processes of a run: small, and right in its books (A9)."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from gyre import records as r
from tests.integration.badinput.model import make
from tests.slow.support import Train, check_books
from tests.support import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

CONFIG = ROOT / "tests" / "slow" / "modes" / "train.toml"
STEPS = 6
RUN_S = 700.0
"""A run takes about half a minute; a machine that is busy with others may take long to import torch in five processes."""
MODES: dict[str, dict[str, Any]] = {
    "elastic": {"mode": "elastic", "cells": 2},
    "async streaming": {"mode": "async", "cells": 2, "training_cells": 1, "standalone_cells": 1},
    "async": {"mode": "async", "cells": 2, "training_cells": 1, "standalone_cells": 1, "streaming": False},
    "colocate streaming": {"mode": "colocate", "cells": 2},
    "colocate": {"mode": "colocate", "cells": 2, "streaming": False},
    "colocate standalone": {"mode": "colocate", "cells": 3, "standalone_cells": 1},
    "hybrid_switch": {"mode": "hybrid_switch", "cells": 2},
    "elastic_plus": {"mode": "elastic_plus", "cells": 2, "plan_every_bursts": 0},
}


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that always makes the same tool call."""
    folder = tmp_path_factory.mktemp("acting") / "model"
    make(folder)
    return folder


@pytest.mark.parametrize("name", MODES)
async def test_a_run_of_each_mode_trains_every_sample_once(name: str, acting: Path, tmp_path: Path):
    """A9, C6, A5. The mean staleness is the law's within the start-up term φ/3 and what six unequal batches of a run's beginning and end leave."""
    settings = {f"scheduler.{key}": value for key, value in MODES[name].items()} | {"run.steps": STEPS}
    async with Train(tmp_path / "run", acting, settings, CONFIG, {}) as run:
        await run.until(lambda: len(run.of(r.StepUpdated)) == STEPS, RUN_S, f"{STEPS} steps")
        summary = await run.finish(RUN_S)
    check_books(run, summary, STEPS)
    assert abs(summary["staleness_mean"] - summary["staleness_law"]) <= 0.75
    assert summary["trained"] > 0 and not summary["dropped"].get("age")
    assert set(summary["endings"]) == {"submitted"}, "no call failed while cells were away"
    assert [fact.version for fact in run.of(r.WeightsPublished)] == [
        burst.first_step + burst.steps for burst in run.of(r.BurstOpened) if burst.steps
    ]
    check_roles(run, MODES[name])


def check_roles(run: Train, mode: dict[str, Any]) -> None:
    """Who changed, and together with whom."""
    cells = [f"cell-{index}" for index in range(mode["cells"])]
    requests: dict[str, list[r.RoleChanged]] = defaultdict(list)
    for fact in run.of(r.RoleChanged):
        if fact.phase == "requested":
            requests[fact.cell].append(fact)
    assert set(requests) == set(cells)
    always = cells[: mode.get("training_cells", 0)]
    never = cells[mode["cells"] - mode.get("standalone_cells", 0) :]
    for cell in (*always, *never):
        assert [fact.target for fact in requests[cell]] == ["training" if cell in always else "rollout"]
    elastic = [cell for cell in cells if cell not in (*always, *never)]
    if elastic:
        assert any(fact.target == "training" for fact in requests[elastic[0]])
    if mode["mode"] == "colocate":
        moves = [[(fact.change, fact.target, fact.at_s) for fact in requests[cell] if fact.change] for cell in elastic]
        assert all(move == moves[0] for move in moves), "the whole pool at once"
