"""The simulator's word on the configuration of a dry run. Services are not imported: the simulator is a process of its own."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from gyre.config import Config
from gyre.errors import Unavailable
from gyre.supervisor.child import die_with_parent, last_words

HOUR_S = 3600.0
LIMIT_S = 600.0
"""A run of a dry run's size takes a second."""
WALL_H_MAX = 8766.0
"""What the simulator takes, a year: a longer limit is none."""
SEEDS = 20
"""Draws of the workload whose mean is taken: the error of the mean of 12 steps is then about a hundredth."""


def specification(config: Config) -> dict[str, Any]:
    """A simulator's specification of what the emulation pretends. One cell is one node."""
    given, scheduler = config.emulation, msgspec.to_builtins(config.scheduler)
    curve = {"family": "hyperbolic", "slowdown": given.load_a}
    if given.load_curve == "power":
        curve = {"family": "knee", "knee": given.load_a, "power": given.load_p}
    return {
        "name": config.run.name,
        "cluster": {
            "nodes_per_cell": 1, "slots_per_node": float(config.rollout.slots), "speed": curve,
            "into_training_s": given.into_training_s, "into_rollout_s": given.into_rollout_s, "eviction_s": given.move_s,
            "rebalance": True,
        },
        "workload": {
            "median_h": given.work_median_s / HOUR_S, "sigma": given.work_sigma, "group_share": given.group_share,
            "wall_limit_h": min(WALL_H_MAX, config.tasks.wall_s / HOUR_S), "environment_share": given.environment_share,
        },
        "training": {"group_node_h": given.group_training_s / HOUR_S, "age_steps_max": config.trajproc.age_steps_max},
        "scheduler": scheduler,
        "horizon": {"first_steps": config.run.steps, "warmup_steps": 0, "steady_steps": 0, "is_whole_run": True},
    }  # fmt: skip


async def predicted_h(config: Config, folder: Path) -> float:
    """Hours to the last step, mean over SEEDS draws. `config` in the workload's own time. Raises Unavailable with the simulator's words."""
    spec, log = folder / "simulation.toml", folder / "simulation.log"
    spec.write_text(tomli_w.dumps(specification(config)))
    words = [sys.executable, "-m", "services.scheduler.simulator", str(spec), "--json", "--seeds", str(SEEDS)]
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=errors,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            async with asyncio.timeout(LIMIT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            raise Unavailable(f"the simulator was not done within {LIMIT_S:g} s (log: {log})") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if process.returncode != 0:
        raise Unavailable(f"the simulator ended with exit code {process.returncode}: {last_words(log)} (log: {log})")
    return json.loads(output)["mean"]["first_steps_h"]
