"""Groups of executions and how much work each is: the calibrated lognormals, or the durations of real agent runs."""

import csv
import math
import random
from functools import cache
from pathlib import Path

from gyre.errors import InvalidInput
from services.scheduler.simulator.spec import Spec, Workload

HOUR_S = 3600.0
RUNS = Path(__file__).parent / "data" / "agent_run_durations.csv"
CENSORED_FACTOR = 1.25
"""A run that its time limit cut would have lasted longer; how much nobody knows. The factor only has to put it beyond the others."""


class Source:
    """Draws one group after the other; all randomness of a workload comes from its own generator, so that two policies meet the same tasks."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self._load = spec.workload
        self._size = spec.scheduler.group_size
        self._rng = random.Random(f"workload {seed}")
        draws = {"lognormal": _Lognormal, "agent_runs": _AgentRuns, "history": _History}[self._load.kind]
        self._draws = draws(self._load, random.Random(f"tasks {seed}"))

    def group(self, step: int) -> tuple[str, list[float]]:
        """(task type, seconds of work at full speed of each member) of the next group, submitted before optimizer step `step`."""
        task_type, work_s = self._draws.group(self._rng, self._size)
        factor = drift(self._load.work_growth, step, self._load)
        if factor != 1.0:
            work_s = [work * factor for work in work_s]
        if self._load.straggler_share:
            slow, rng = self._load.straggler_factor, self._rng
            work_s = [work * slow if rng.random() < self._load.straggler_share else work for work in work_s]
        return task_type, work_s


def drift(growth: float, step: int, load: Workload) -> float:
    """The factor that a drifting quantity has reached at `step`."""
    return growth ** (min(step, load.drift_steps) / load.drift_steps) if growth != 1.0 else 1.0


class _Lognormal:
    """ln work = ln median + σ·(√r·z_group + √(1 − r)·z_member)."""

    def __init__(self, load: Workload, rng: random.Random) -> None:
        self._log_median = math.log(load.median_h * HOUR_S)
        self._common = load.sigma * math.sqrt(load.group_share)
        self._own = load.sigma * math.sqrt(1.0 - load.group_share)
        self._tasks = [(f"task-{index}", rng.gauss(0.0, 1.0)) for index in range(load.tasks)] if load.tasks > 1 else []

    def group(self, rng: random.Random, size: int) -> tuple[str, list[float]]:
        name, z = rng.choice(self._tasks) if self._tasks else ("any", rng.gauss(0.0, 1.0))
        level = self._log_median + self._common * z
        own, gauss, exp = self._own, rng.gauss, math.exp
        return name, [exp(level + own * gauss(0.0, 1.0)) for _ in range(size)]


class _AgentRuns:
    """Members are resampled from one agent's runs of one task; the task is the type that production would know."""

    def __init__(self, load: Workload, rng: random.Random) -> None:
        runs = agent_runs()
        agents = sorted({agent for agent, _ in runs})
        if load.agent and load.agent not in agents:
            raise InvalidInput(f"workload.agent {load.agent!r} has no runs; there are {', '.join(agents)}")
        self._runs = [
            (task, durations) for (agent, task), durations in sorted(runs.items()) if load.agent in ("", agent)
        ]
        mean_s = sum(sum(d) / len(d) for _, d in self._runs) / len(self._runs)
        self._scale = load.mean_h * HOUR_S / mean_s

    def group(self, rng: random.Random, size: int) -> tuple[str, list[float]]:
        task, durations = rng.choice(self._runs)
        return task, [duration * self._scale for duration in rng.choices(durations, k=size)]


class _History:
    """Whole groups, so that what their members share stays shared; members are resampled only where a group is of another size."""

    def __init__(self, load: Workload, rng: random.Random) -> None:
        self._groups = [[hours * HOUR_S for hours in group] for group in load.history_h]

    def group(self, rng: random.Random, size: int) -> tuple[str, list[float]]:
        group = rng.choice(self._groups)
        return "any", group if len(group) == size else rng.choices(group, k=size)


@cache
def agent_runs() -> dict[tuple[str, str], list[float]]:
    """(agent, task) → seconds of its runs that ended by themselves or by their time limit."""
    found: dict[tuple[str, str], list[float]] = {}
    with RUNS.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["outcome"] in ("unset", "agent_timeout"):
                factor = CENSORED_FACTOR if row["outcome"] == "agent_timeout" else 1.0
                found.setdefault((row["agent"], row["task"]), []).append(float(row["duration_s"]) * factor)
    return found
