"""WhatIf from the facts of a run that has trained for a while, by the command line (D15)."""

import json

from gyre.bus.access import SPEAKS
from gyre.records import StepOpened
from services.scheduler.simulator import parse
from services.scheduler.simulator import world as world_module
from services.scheduler.simulator.world import World
from tests.integration.scheduler.test_execution_commands import gyre
from tests.support import TestRun

KNOBS = {
    "cells": 2,
    "cell_capacity": 8,
    "groups_per_step": 2,
    "group_size": 4,
    "steps_per_publish": 1,
    "extra_depth_steps": 0.5,
}
SPEAKERS = {kind: service for service, kinds in reversed(SPEAKS.items()) for kind in kinds}


def lived(monkeypatch, steps: int) -> list:
    """Every fact of a simulated run, in order."""
    told, fold = [], world_module.apply
    monkeypatch.setattr(world_module, "apply", lambda state, fact: (told.append(fact), fold(state, fact))[1])
    World(
        parse({"cluster": {"nodes_per_cell": 1, "slots_per_node": 8.0}, "training": {"group_node_h": 1.0}, "scheduler": KNOBS}), 1
    ).until_step(steps)  # fmt: skip
    return [fact for fact in told if not isinstance(fact, StepOpened)]


async def test_a_running_run_says_what_another_depth_would_do(tmp_path, monkeypatch):
    """φ 0.5 → 2.5 at μ = 1: the law's staleness rises from .5 to 2.5; the knobs of the run stay as they are."""
    told = lived(monkeypatch, 10)
    async with TestRun(tmp_path, {"scheduler": KNOBS}) as run:
        buses = {name: await run.bus(name) for name in set(SPEAKERS.values())}
        for fact in told:
            await buses[SPEAKERS[type(fact)]].publish(fact)
        await run.start("services.scheduler", endpoint="scheduler")
        code, out, errors = await gyre(
            run, "what-if", "--set", "scheduler.extra_depth_steps=2.5", "--seeds", "2", "--limit", "200", "--json"
        )
        assert code == 0, errors
        answer = json.loads(out)
        assert answer["seeds"] == 2 and answer["unchanged"]["step_s"] > 0
        assert (
            abs(answer["unchanged"]["staleness_mean"] - 0.5) < 0.15
            and abs(answer["changed"]["staleness_mean"] - 2.5) < 0.15
        )
        assert answer["time_ratio"] < 1.02  # deeper dispatch cannot slow a run down but by noise
        assert answer["measured_step_s"] > 0

        code, _, errors = await gyre(run, "what-if", "--set", "scheduler.extra_depth_steps=-1")
        assert code == 2 and "extra_depth_steps" in errors
        code, _, errors = await gyre(run, "what-if", "--set", "rollout.slots=4")
        assert code == 2 and "gyre simulate" in errors
