"""What is read off the facts of an emulated run. Pure: a fold, and times in hours of the workload."""

from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from gyre import records as r
from gyre.cli.training.progress import Progress
from gyre.config import Config

HOUR_S = 3600.0


@dataclass
class Timeline:
    """When what happened, in wall-clock seconds."""

    first_dispatch_s: float = 0.0
    updated_s: dict[int, float] = field(default_factory=dict)
    """Policy version → when its update was done."""
    started_s: dict[str, float] = field(default_factory=dict)
    lasted_s: list[float] = field(default_factory=list)
    """Of executions that have ended."""
    endings: Counter[str] = field(default_factory=Counter)
    compute_s: float = 0.0
    """Cell-seconds of training."""

    def apply(self, fact: r.Fact) -> None:
        match fact:
            case r.GroupDispatched(purpose="train"):
                self.first_dispatch_s = self.first_dispatch_s or fact.at_s
            case r.ExecutionEnded(purpose="train") if fact.started_at_s:
                self.endings[fact.ending] += 1
                self.lasted_s.append(fact.at_s - fact.started_at_s)
            case r.StepUpdated():
                self.updated_s[fact.version] = fact.at_s
                self.compute_s += fact.metrics.get("compute_s", 0.0)


def measured(timeline: Timeline, progress: Progress, config: Config) -> dict[str, Any]:
    """`wall_h` is the time of the last update since the first dispatch. Times in hours of the workload unless the name says otherwise."""
    scale = config.emulation.time_scale
    scheduler = config.scheduler
    wall_s = timeline.updated_s[config.run.steps] - timeline.first_dispatch_s
    ended = sum(timeline.endings.values())
    changes = {name: values for name, values in progress.phase_s.items() if name.endswith(".total")}
    return {
        "mode": scheduler.mode,
        "streaming": scheduler.streaming,
        "steps_per_publish": scheduler.steps_per_publish,
        "extra_depth_steps": scheduler.extra_depth_steps,
        "training_cells": scheduler.training_cells,
        "standalone_cells": scheduler.standalone_cells,
        "wall_h": round(wall_s * scale / HOUR_S, 4),
        "measured_s": round(wall_s, 2),
        "staleness_mean": None if progress.staleness_mean is None else round(progress.staleness_mean, 4),
        "staleness_max": max((most for _, _, most in progress.staleness), default=None),
        "execution_h": round(fmean(timeline.lasted_s) * scale / HOUR_S, 4) if timeline.lasted_s else None,
        "timed_out_share": round(timeline.endings["timed_out"] / ended, 4) if ended else None,
        "failed": timeline.endings["failed"],
        "training_share": round(timeline.compute_s / (wall_s * scheduler.cells), 4),
        "role_changes": progress.role_changes,
        "role_change_s": {
            name.partition(".")[0]: round(median(values) * scale, 1) for name, values in sorted(changes.items())
        },
        "role_change_wall_s": {
            name.partition(".")[0]: round(median(values), 3) for name, values in sorted(changes.items())
        },
        "groups_per_step": round(sum(count for _, count, _ in progress.staleness) / max(1, len(progress.staleness)), 3),
    }


def compared(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Speed-ups of `ours` over the baselines; None where there is no such row."""
    ours = next(row["wall_h"] for row in rows if row["role"] == "ours")

    def over(walls: list[float]) -> float | None:
        return round(min(walls) / ours, 4) if walls else None

    def paper(mode: str) -> list[float]:
        return [row["wall_h"] for row in rows if row["role"] == "paper" and row["mode"] == mode]

    errors = [abs(row["error"]) for row in rows if row.get("error") is not None]
    return {
        "speedup_over_async": over(paper("async")),
        "speedup_over_colocate": over(paper("colocate")),
        "speedup_over_tuned": over([row["wall_h"] for row in rows if row["role"] == "tuned"]),
        "error_vs_simulator": round(max(errors), 4) if errors else None,
    }
