"""The run so far, as a fold of its facts. Pure: the same facts in the same order give the same numbers.

facts ──▶ Progress.apply ──▶ panel (while it runs), summary (when it is over)
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from statistics import median

from gyre import records as r
from gyre.ids import sample_id

RECENT = 128
"""Samples over which reward and success move: two to four batches of the usual size."""
RECENT_BATCHES = 8
FOLLOWS = (
    r.GroupDispatched, r.ExecutionEnded, r.RoleChanged, r.WaterlevelChanged, r.WeightsPublished, r.SampleReady,
    r.SampleDropped, r.BatchClosed, r.StepJoined, r.StepUpdated, r.AlarmRaised,
)  # fmt: skip
"""The facts it needs; call records, the bulk of the stream, are not among them."""


@dataclass(frozen=True)
class Verdict:
    """How one evaluation execution ended."""

    attempt: int
    success: bool
    failed: bool
    """The environment or the evaluation failed: not a failure of the agent, shown apart."""
    policy_version: int


@dataclass
class Lane:
    """One cell's roles over time."""

    marks: list[tuple[float, str]] = field(default_factory=list)
    """(at_s, `rollout` | `training` | `changing`), each valid until the next."""
    changes: int = 0
    """Finished role changes; the start of the run is none."""
    phase: str = ""
    target: str = ""
    requested_at_s: float = 0.0

    def at(self, at_s: float) -> str:
        role = ""
        for since_s, name in self.marks:
            if since_s > at_s:
                break
            role = name
        return role


class Progress:
    """Everything the panel and the summary say about the run."""

    def __init__(self) -> None:
        self.begun_s = 0.0
        self.now_s = 0.0
        """Time of the newest fact."""
        self.facts = 0
        self.waterlevel = 0
        self.capacity = 0
        self.version = 0
        self.published = 0
        self.lanes: dict[str, Lane] = {}
        self.phase_s: dict[str, list[float]] = defaultdict(list)
        self.mid_batch_joins = 0
        self.steps = 0
        self.step_metrics: dict[str, float] = {}
        self.staleness: list[tuple[float, int, int]] = []
        """(mean, groups, max) of each batch."""
        self.rewards: deque[float] = deque(maxlen=RECENT)
        self.successes: deque[bool] = deque(maxlen=RECENT)
        self.groups_dispatched: set[str] = set()
        """Training groups handed out."""
        self.dispatched: set[str] = set()
        """Training executions handed out."""
        self.trained: set[str] = set()
        """Sample ids that went into an update."""
        self.trained_executions: set[str] = set()
        self.dropped: dict[str, str] = {}
        """Execution → reason of its last drop."""
        self.verdicts: dict[str, Verdict] = {}
        self.groups_ended: Counter[str] = Counter()
        self.turns = 0
        self.tokens_sampled = 0
        self.endings: Counter[str] = Counter()
        self.alarms: Counter[str] = Counter()
        self._ended: set[str] = set()

    def apply(self, fact: r.Fact) -> None:
        self.facts += 1
        self.now_s = max(self.now_s, fact.at_s)
        self.begun_s = self.begun_s or fact.at_s
        match fact:
            case r.GroupDispatched(purpose="train"):
                self.groups_dispatched.add(fact.group_id)
                self.dispatched.update(fact.execution_ids)
            case r.ExecutionEnded():
                self._execution_ended(fact)
            case r.RoleChanged():
                self._role_changed(fact)
            case r.WaterlevelChanged():
                self.waterlevel, self.capacity, self.version = fact.waterlevel, fact.capacity, fact.policy_version
            case r.WeightsPublished():
                self.published = max(self.published, fact.version)
            case r.SampleReady():
                self.rewards.append(fact.reward)
                self.successes.append(fact.success)
            case r.SampleDropped():
                # A fenced older attempt says nothing about its execution.
                if fact.reason != "duplicate":
                    self.dropped[fact.execution_id] = fact.reason
            case r.BatchClosed():
                self.staleness.append((fact.staleness_mean, len(fact.groups), fact.staleness_max))
            case r.StepJoined():
                self.mid_batch_joins += fact.mid_batch
            case r.StepUpdated():
                self.steps = max(self.steps, fact.version)
                self.step_metrics = fact.metrics
                self.trained.update(fact.sample_ids)
                self.trained_executions.update(name.rpartition("-a")[0] for name in fact.sample_ids)
            case r.AlarmRaised():
                self.alarms[fact.kind] += 1

    def _execution_ended(self, fact: r.ExecutionEnded) -> None:
        name = sample_id(fact.execution_id, fact.attempt)
        if name in self._ended:
            return
        self._ended.add(name)
        self.turns += fact.turns
        self.tokens_sampled += fact.tokens_sampled
        if fact.purpose != "evaluation":
            self.endings[fact.reason] += 1
            return
        known = self.verdicts.get(fact.execution_id)
        if known is not None and known.attempt > fact.attempt:
            return
        if known is None:
            self.groups_ended[fact.group_id] += 1
        evaluation = fact.evaluation
        is_valid = evaluation is not None and evaluation.valid and fact.ending != "failed"
        self.verdicts[fact.execution_id] = Verdict(
            attempt=fact.attempt, success=is_valid and evaluation.outcome >= 1, failed=not is_valid,
            policy_version=fact.policy_version,
        )  # fmt: skip

    def _role_changed(self, fact: r.RoleChanged) -> None:
        lane = self.lanes.setdefault(fact.cell, Lane())
        lane.phase, lane.target = fact.phase, fact.target
        is_last = fact.phase == r.CELL_PHASES[fact.target][-1]
        lane.marks.append((fact.at_s, fact.target if is_last else "changing"))
        if fact.change == 0:
            return
        into = f"into_{fact.target}"
        if fact.phase == "requested":
            lane.requested_at_s = fact.at_s
        else:
            self.phase_s[f"{into}.{fact.phase}"].append(fact.duration_s)
        if is_last:
            lane.changes += 1
            self.phase_s[f"{into}.total"].append(fact.at_s - lane.requested_at_s)

    @property
    def role_changes(self) -> int:
        return sum(lane.changes for lane in self.lanes.values())

    @property
    def role_change_s(self) -> dict[str, float]:
        """Median of each phase, seconds."""
        return {name: round(median(values), 4) for name, values in sorted(self.phase_s.items())}

    @property
    def staleness_mean(self) -> float | None:
        """Mean over all groups that batches consumed (A5); None before the first."""
        groups = sum(count for _, count, _ in self.staleness)
        return sum(mean * count for mean, count, _ in self.staleness) / groups if groups else None

    def groups_per_step(self, planned: int) -> int:
        """The most groups that one of the last batches consumed, at least as many as planned."""
        return max([planned, *(count for _, count, _ in self.staleness[-RECENT_BATCHES:])])

    @property
    def drops(self) -> dict[str, int]:
        """Executions that left training, by reason; what was trained after all does not count."""
        return dict(
            sorted(Counter(r for name, r in self.dropped.items() if name not in self.trained_executions).items())
        )

    @property
    def in_flight(self) -> int:
        """Dispatched for training, neither trained nor dropped."""
        return len(self.dispatched - self.trained_executions - set(self.dropped))

    def all_serving(self, cells: int) -> bool:
        """Every cell that may serve does."""
        return sum(lane.phase == "serving" for lane in self.lanes.values()) == cells

    def any_serving(self) -> bool:
        return any(lane.phase == "serving" for lane in self.lanes.values())

    def evaluated(self, groups: set[str]) -> list[Verdict]:
        """Verdicts of these groups' executions."""
        return [verdict for name, verdict in self.verdicts.items() if name.rpartition("-e")[0] in groups]

    def has_ended(self, groups: set[str]) -> int:
        """How many of these evaluation groups (of one execution each) have ended."""
        return sum(group in self.groups_ended for group in groups)


def success_share(verdicts: list[Verdict]) -> float | None:
    """Successes over all; what failed for the environment's sake counts against the run and is shown apart."""
    return sum(v.success for v in verdicts) / len(verdicts) if verdicts else None
