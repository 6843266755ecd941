"""Which cells may serve rollout and which may train: first those that always train, then elastic ones, then standalone ones (A9).

A cell that never serves has no rollout process, one that never trains no trainer process, and their phases of a role change are left out.
"""

from gyre.config.sections import SchedulerConfig


def serves(scheduler: SchedulerConfig, index: int) -> bool:
    """Whether cell `index` has a rollout process."""
    return scheduler.training_cells <= index < scheduler.cells


def trains(scheduler: SchedulerConfig, index: int) -> bool:
    """Whether cell `index` has a trainer process."""
    return 0 <= index < scheduler.cells - scheduler.standalone_cells


def serving(scheduler: SchedulerConfig) -> list[int]:
    """Cells with a rollout process, in order."""
    return [index for index in range(scheduler.cells) if serves(scheduler, index)]


def training(scheduler: SchedulerConfig) -> list[int]:
    """Cells with a trainer process, in order; the first is the core."""
    return [index for index in range(scheduler.cells) if trains(scheduler, index)]
