"""The scheduler's state: everything it knows, all of it from facts."""

from collections import Counter
from dataclasses import dataclass, field

from gyre.config import Config, TierConfig
from gyre.ids import cell_id
from gyre.records import CELL_PHASES, TaskSpec
from gyre.records.lifecycle import ExecutionState

ACTIVE = frozenset({ExecutionState.QUEUED, ExecutionState.LEASED, ExecutionState.RUNNING, ExecutionState.SUSPENDED})
"""Dispatched and not finished: what the waterlevel counts."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the policy is given; symbols as in docs/staleness.md."""

    cells: int
    """K"""
    cell_capacity: int
    """C_e, executions."""
    groups_per_step: int
    """B as planned, groups."""
    steps_per_publish: int
    """μ, steps."""
    extra_depth_steps: float
    """φ, steps."""
    tiers: tuple[TierConfig, ...] = (TierConfig(),)
    order: str = "longest_first"
    aging_s: float = 600.0
    starvation_s: float = 3600.0
    run_seed: int = 1
    fingerprint: str = ""

    @classmethod
    def of(cls, config: Config, fingerprint: str) -> "Settings":
        chosen = config.scheduler
        return cls(
            cells=chosen.cells, cell_capacity=chosen.cell_capacity, groups_per_step=chosen.groups_per_step,
            steps_per_publish=chosen.steps_per_publish, extra_depth_steps=chosen.extra_depth_steps, tiers=tuple(chosen.tiers),
            order=chosen.order, aging_s=chosen.aging_s, starvation_s=chosen.starvation_s, run_seed=config.run.seed, fingerprint=fingerprint,
        )  # fmt: skip

    def tier(self, name: str) -> TierConfig:
        """Raises KeyError for a tier that is not configured."""
        return self.tiers[self.tier_index(name)]

    def tier_index(self, name: str) -> int:
        for index, tier in enumerate(self.tiers):
            if tier.name == name:
                return index
        raise KeyError(name)

    def tier_for(self, predicted_s: float) -> str:
        """The first tier that fits; the last takes whatever is longer still."""
        return next((t.name for t in self.tiers if predicted_s <= t.predicted_s_max), self.tiers[-1].name)


@dataclass
class Execution:
    """One member of a dispatched group."""

    state: ExecutionState = ExecutionState.QUEUED
    attempt: int = 0
    """Newest attempt that counts; 0 before the first lease."""


@dataclass
class Group:
    """A submitted task; its executions exist from dispatch on."""

    group_id: str
    task: TaskSpec
    tier: str
    submitted_at_s: float
    policy_version: int = -1
    """v_d, −1 before dispatch."""
    dispatched_at_s: float = 0.0
    attempt_base: int = 0
    executions: dict[str, Execution] = field(default_factory=dict)

    @property
    def is_trained(self) -> bool:
        """Whether its executions are meant for training."""
        return self.task.purpose == "train"


@dataclass
class Cell:
    """Last word on a cell's role."""

    change: int = -1
    target: str = "rollout"
    phase: str = ""
    at_s: float = 0.0
    boundary: int = -1
    """How many boundaries there had been when this change was requested."""

    @property
    def is_settled(self) -> bool:
        """Its role change is complete."""
        return self.phase == CELL_PHASES[self.target][-1]

    @property
    def is_serving(self) -> bool:
        return self.target == "rollout" and self.is_settled


@dataclass
class Estimate:
    """Running mean of how long executions of one task type last."""

    executions: int = 0
    mean_s: float = 0.0


@dataclass
class State:
    """All of it is a fold of facts; `settings` is the only thing given from outside."""

    settings: Settings
    cells: dict[str, Cell] = field(default_factory=dict)
    """In order; the first is the core."""

    queue: dict[str, Group] = field(default_factory=dict)
    """Train groups that wait, in order of submission."""
    evaluations: dict[str, Group] = field(default_factory=dict)
    """Evaluation groups that wait; they leave at the next decision."""
    groups: dict[str, Group] = field(default_factory=dict)
    """Dispatched, with members that are not final. A group that is in none of the three is over: late repeats of its facts are ignored."""
    group_of_task: dict[str, str] = field(default_factory=dict)
    estimates: dict[str, Estimate] = field(default_factory=dict)

    dispatched: int = 0
    finished: int = 0
    outstanding_groups: int = 0
    """Train groups dispatched and neither trained nor dropped."""
    active_by_tier: Counter[str] = field(default_factory=Counter)
    executions_by_state: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """`from->to` → how often the table refused it."""
    fenced: int = 0
    """Facts of attempts that no longer (or never did) count."""
    promotions: int = 0

    steps_wanted: int = 0
    steps_done: int = 0
    published_version: int = 0
    started_at_s: float = 0.0
    closed_step: int = -1
    """Newest step whose batch is complete."""
    batches: dict[int, list[str]] = field(default_factory=dict)
    """Closed and not yet updated: step → sample ids."""

    boundaries: int = 0
    boundary_at_s: float = 0.0
    need: int = 0
    """Groups that the last boundary still has to dispatch."""
    carry: float = 0.0
    """What rounding has left over at boundaries, groups."""
    sent_groups: int = 0
    """Train groups dispatched since the last boundary."""
    core_stays: bool = False
    """Decided at the last boundary by the return rule."""
    groups_per_step: float = 0.0
    """B̂: groups a step consumes, smoothed."""
    burst_groups: float = 0.0
    burst_steps: int = 0
    """Batches closed since the last boundary, and the groups in them."""

    alarms: dict[str, float] = field(default_factory=dict)
    """Kind → when it was last raised."""

    def __post_init__(self) -> None:
        if not self.cells:
            self.cells = {cell_id(index): Cell() for index in range(self.settings.cells)}
        self.groups_per_step = self.groups_per_step or float(self.settings.groups_per_step)

    @property
    def waterlevel(self) -> int:
        """w(t), executions."""
        return self.dispatched - self.finished

    @property
    def capacity(self) -> int:
        """C_R(t), executions."""
        return self.settings.cell_capacity * sum(cell.is_serving for cell in self.cells.values())

    @property
    def burst(self) -> int:
        """Burst b covers steps b·μ … b·μ + μ − 1."""
        return self.published_version // self.settings.steps_per_publish

    @property
    def steps_left(self) -> int:
        """Steps after the last publish."""
        return max(0, self.steps_wanted - self.published_version)

    @property
    def num_submitted(self) -> int:
        """Groups ever submitted, which is also the index of the next."""
        return len(self.group_of_task)
