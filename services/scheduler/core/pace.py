"""How fast training goes, as far as facts tell: what is left of the open batch, what a group costs, whether trainers wait.

Training is taken as a fluid: a group is `group_cell_s` cell-seconds of work, the cells in training share it. The last stretch of each step
teaches the cost: after the batch's last group has come nothing is waited for, so the cell-seconds from there to the update are what was
left, in groups. Too high an estimate finds more groups left than there were and is lowered, too low a one finds fewer, but never less than
the last group itself, and is raised.
"""

import msgspec

LEARNING = 0.25
"""Weight of the newest step: a memory of four."""
LEARNING_EXECUTIONS = 1 / 64
IDLE_SHARE = 0.1
"""A step in which trainers waited for longer than this share of its time was an idle one."""
RATIO_MIN, RATIO_FIRST, RATIO_MAX = 0.05, 0.3, 1.0
RATIO_UP, RATIO_DOWN = 0.05, 0.03
STREAK_STEPS = 2
"""verl's separate_async with switching: the ratio rises by .05 after two idle steps and falls by .03 after two calm ones."""


class Pace(msgspec.Struct):
    """Folded from batches, updates and role changes."""

    group_cell_s: float = 0.0
    """Cell-seconds of training that a group takes; 0 before the first step."""
    trainers: int = 0
    """Cells in training since `at_s`."""
    at_s: float = 0.0
    num_taken: int = 0
    """Groups in the open batch."""
    left_s: float = 0.0
    """Cell-seconds of them that are not done."""
    spent_s: float = 0.0
    """Cell-seconds since the batch began."""
    tail_s: float = 0.0
    """Cell-seconds since its last group came."""
    tail_groups: float = 0.0
    """What was left then, in groups."""
    idle_s: float = 0.0
    busy_s: float = 0.0
    """Time of this step in which trainers waited, and worked."""
    lending_ratio: float = RATIO_FIRST
    """hybrid_switch: r."""
    idle_steps: int = 0
    calm_steps: int = 0
    execution_s: float = 0.0
    """Mean duration of executions, over all task types."""

    def lasted(self, lasted_s: float) -> None:
        """An execution has ended."""
        self.execution_s += (lasted_s - self.execution_s) * (LEARNING_EXECUTIONS if self.execution_s else 1.0)

    def to(self, now_s: float, trainers: int) -> None:
        """Go on to `now_s`; from there on `trainers` cells train."""
        passed_s = max(0.0, now_s - self.at_s)
        if self.trainers:
            done_s = min(self.left_s, self.trainers * passed_s)
            self.left_s -= done_s
            self.busy_s += done_s / self.trainers
            self.idle_s += passed_s - done_s / self.trainers
            if self.num_taken:
                self.spent_s += self.trainers * passed_s
                self.tail_s += self.trainers * passed_s
        self.at_s = max(self.at_s, now_s)
        self.trainers = trainers

    def left_at_s(self, now_s: float) -> float:
        """Cell-seconds left of the open batch by now; infinite while the cost of a group is not known and some are there."""
        if self.group_cell_s == 0.0:
            return float("inf") if self.num_taken else 0.0
        return max(0.0, self.left_s - self.trainers * max(0.0, now_s - self.at_s))

    def taken(self, now_s: float) -> None:
        """A group has joined the batch."""
        self.to(now_s, self.trainers)
        self.num_taken += 1
        self.left_s += self.group_cell_s
        self.tail_s = 0.0
        self.tail_groups = max(1.0, self.left_s / self.group_cell_s) if self.group_cell_s else 1.0

    def updated(self, now_s: float) -> None:
        """The step is done."""
        self.to(now_s, self.trainers)
        if self.num_taken and self.tail_s > 0.0:
            if self.group_cell_s == 0.0:
                self.group_cell_s = min(self.tail_s, self.spent_s / self.num_taken)
            else:
                self.group_cell_s += LEARNING * (self.tail_s / self.tail_groups - self.group_cell_s)
        self._adapt_ratio(self.idle_s > IDLE_SHARE * (self.idle_s + self.busy_s))
        self.num_taken = 0
        self.left_s = self.spent_s = self.tail_s = self.idle_s = self.busy_s = 0.0

    def _adapt_ratio(self, was_idle: bool) -> None:
        self.idle_steps, self.calm_steps = (self.idle_steps + 1, 0) if was_idle else (0, self.calm_steps + 1)
        if self.idle_steps == STREAK_STEPS:
            self.lending_ratio, self.idle_steps = min(RATIO_MAX, self.lending_ratio + RATIO_UP), 0
        elif self.calm_steps == STREAK_STEPS:
            self.lending_ratio, self.calm_steps = max(RATIO_MIN, self.lending_ratio - RATIO_DOWN), 0
