"""The scheduler's state: everything it knows, all of it from facts. `msgspec` encodes and decodes it whole, so the shell can keep snapshots."""

from collections import Counter
from typing import Any

import msgspec

from services.scheduler.core.estimate import Estimate
from services.scheduler.core.evaluations import Evaluations
from services.scheduler.core.fleet import Cell, Fleet
from services.scheduler.core.groups import Group
from services.scheduler.core.history import History
from services.scheduler.core.pace import Pace
from services.scheduler.core.queue import Queue
from services.scheduler.core.settings import Knobs, Settings


class State(msgspec.Struct):
    """A fold of facts; `settings` is the only thing given from outside. Whatever a decision asks is a field or a counter: nothing is searched for."""

    settings: Settings
    fleet: Fleet = msgspec.field(default_factory=Fleet)

    queue: Queue = msgspec.field(default_factory=Queue)
    """Train groups that wait."""
    evaluations: Evaluations = msgspec.field(default_factory=Evaluations)
    """Evaluation groups that wait, and what of them is unfinished."""
    groups: dict[str, Group] = {}
    """Dispatched, with members that are not final. A group that is in none of the three is over: late repeats of its facts are ignored."""
    group_of_task: dict[str, str] = {}
    """Tasks whose groups are not over, and the newest others: TASKS_REMEMBERED in all where so few are under way. Who submits one of them again is
    told its group."""
    num_submitted: int = 0
    """Groups ever submitted, which is also the index of the next."""
    estimates: dict[str, Estimate] = {}
    """Task type → how long its executions last."""
    pace: Pace = msgspec.field(default_factory=Pace)
    """How fast training goes."""
    history: History = msgspec.field(default_factory=History)
    """What has been seen of late, for whoever plans."""

    dispatched_groups: int = 0
    dispatched: int = 0
    """Executions."""
    finished: int = 0
    outstanding_groups: int = 0
    """Train groups dispatched and neither trained nor dropped."""
    ready_groups: int = 0
    """Of these, the ones that a batch could take now: evaluated and in no batch."""
    untaken_groups: int = 0
    """Of these, the ones with a member that is in no batch yet."""
    active_by_tier: dict[str, int] = {}
    over: dict[str, int] = {}
    """Executions of dispatched groups that are over, by their last state."""
    refused: dict[str, int] = {}
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
    begun_step: int = -1
    """Newest step whose batch has begun."""
    batches: dict[int, list[str]] = {}
    """Closed and not yet updated: step → sample ids."""

    bursts: int = 0
    """Bursts opened so far: the next one's ordinal."""
    opened_step: int = -1
    """First step of the newest burst; −1 before the first."""
    burst_end: int = 0
    """The version whose publish ends it."""
    boundary_at_s: float = 0.0
    knobs: Knobs | None = None
    """In force in this burst."""
    planned: Knobs | None = None
    """In force from the next boundary on."""
    plans: int = 0
    need: int = 0
    """Groups that this boundary still has to dispatch."""
    level: int = 0
    """Outstanding groups that this boundary aims at."""
    carry: float = 0.0
    """What rounding has left over at boundaries, groups."""
    sent_groups: int = 0
    """Train groups dispatched since the last boundary."""
    releases: int = 0
    """Elastic cells that were asked into training in this burst and are there still."""
    entered_step: int = -1
    """Steps done when the core was last asked into training."""
    was_in_vain: bool = False
    """It was asked back before it had done one."""
    core_stays: bool = False
    """Decided at the last boundary by the return rule."""
    groups_per_step: float = 0.0
    """B̂: groups a step consumes, smoothed."""
    burst_groups: float = 0.0
    burst_steps: int = 0
    """Batches closed since the last boundary, and the groups in them."""

    late: dict[str, str] = {}
    """Unfinished executions that a batch waited for in vain → what they are to be told: `truncate` or `void` (C5)."""
    alarms: dict[str, float] = {}
    """Kind → when it was last raised."""

    def __post_init__(self) -> None:
        if not self.fleet.cells:
            self.fleet = Fleet.of(self.settings)
        self.groups_per_step = self.groups_per_step or float(self.settings.groups_per_step)
        self.knobs = self.knobs or self.settings.knobs
        self.planned = self.planned or self.settings.knobs

    @property
    def cells(self) -> dict[str, Cell]:
        """In order; the first is the core."""
        return self.fleet.cells

    @property
    def waterlevel(self) -> int:
        """w(t), executions."""
        return self.dispatched - self.finished

    @property
    def capacity(self) -> int:
        """C_R(t), executions."""
        return self.fleet.capacity

    @property
    def executions_by_state(self) -> Counter[str]:
        """Every execution that was dispatched. Operators ask and decisions do not, so it is counted when asked: some 10 ms for 100,000 unfinished."""
        counts = Counter(self.over)
        counts.update(one.state for group in self.groups.values() for one in group.executions.values())
        return counts

    @property
    def burst(self) -> int:
        """Ordinal of the newest burst; 0 before the first."""
        return max(0, self.bursts - 1)

    @property
    def is_burst_open(self) -> bool:
        """The burst that begins at the newest publish has been opened; no burst follows the run's last step."""
        return self.steps_left > 0 and self.opened_step == self.published_version

    @property
    def steps_left(self) -> int:
        """Steps after the last publish."""
        return max(0, self.steps_wanted - self.published_version)

    @property
    def is_in_step(self) -> bool:
        """A batch has begun (or is whole) and its step is not updated yet."""
        return max(self.begun_step, self.closed_step) >= self.steps_done

    def is_over(self, group_id: str) -> bool:
        """Whether nothing more can happen to a group that was submitted."""
        return group_id not in self.queue and group_id not in self.groups and group_id not in self.evaluations


def encode_state(state: State) -> bytes:
    """A snapshot: with the tail of facts after it, it is as good as all facts."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> State:
    """Raises msgspec.ValidationError for a snapshot of another layout; then the facts are folded from the first."""
    return msgspec.msgpack.decode(data, type=State)


def bump(counts: dict[Any, int], key: Any, by: int = 1) -> None:
    """Count in a plain dict, which travels as it is."""
    counts[key] = counts.get(key, 0) + by
