"""What the processor remembers: only what is in flight.

An execution's records live from its first call until its group is taken into a batch or dropped; of a finished group nothing stays but
its name, which tells a late repeat from news.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gyre import ids
from gyre.records import BatchOverdue, CallRecorded, CallSetAside, ExecutionEnded, RewardScored, Row, SampleReady
from services.trajproc.core.credit import NO_CREDIT, Credit
from services.trajproc.core.scoring.reward import why_no_reward
from services.trajproc.core.tree import Known, Tree, TreeBuilder


@dataclass(slots=True)
class Member:
    """One execution: the records of its newest attempt, and its ending."""

    execution_id: str
    attempt: int = 0
    calls: dict[str, CallRecorded] = field(default_factory=dict)
    """All that arrived, also what cannot be trusted."""
    builder: TreeBuilder | None = None
    """Their tree so far."""
    frozen: Tree | None = None
    """Their tree, once it was asked for and until another record comes."""
    ended: ExecutionEnded | None = None
    absent: set[str] = field(default_factory=set)
    """Calls that its ending counts and whose records will not come any more."""
    scores: dict[str, RewardScored] = field(default_factory=dict)
    """Evaluator → its word on record about this attempt."""
    stale: set[int] = field(default_factory=set)
    """Older attempts whose ending was seen."""
    is_replay: bool = False
    """Its newest attempt goes on from a snapshot of an earlier one's environment."""
    is_late: bool = False
    """It had not arrived when its batch's wait was over, and was told to end."""

    def see(self, attempt: int) -> bool:
        """Whether words of `attempt` count. A newer one fences what came before, unless the execution has ended."""
        if attempt > self.attempt and self.ended is None:
            self.attempt = attempt
            self.calls, self.builder, self.frozen, self.scores, self.is_replay = {}, None, None, {}, False
            self.absent = set()
        return attempt == self.attempt

    def add(self, call: CallRecorded, known: Known) -> None:
        """A record of the newest attempt, held against what is known."""
        self.builder = self.builder or TreeBuilder(known)
        self.builder.add(call)
        self.frozen = None
        self.calls.setdefault(call.call_id, call)

    @property
    def sound(self) -> list[CallRecorded]:
        """Records that have their place in the tree, in call order: what is judged and credited, and trained unless it is set aside."""
        return self.builder.calls if self.builder else []

    def tree(self, class_order: Sequence[str]) -> Tree:
        """Of its sound records."""
        self.frozen = self.frozen or (self.builder or TreeBuilder()).tree(class_order)
        return self.frozen

    @property
    def is_complete(self) -> bool:
        """Ended, with every call record that the ending counts (those of an ending without reward are not needed), or all that will come."""
        if self.ended is None:
            return False
        return bool(self.absent or why_no_reward(self.ended)) or len(self.calls) >= self.ended.calls


@dataclass(slots=True)
class Verdict:
    """What a complete group says of one member."""

    sample_id: str
    ended: ExecutionEnded
    drop: str
    """Reason why it leaves training at once; empty when it may be trained."""
    detail: str = ""
    """For people: why, where the reason does not say."""
    reward: float = 0.0
    rewards: dict[str, float] = field(default_factory=dict)
    milestone_weights: dict[str, float] = field(default_factory=dict)
    """What each milestone pays when it is verified."""
    success: bool = False
    credit: Credit = NO_CREDIT
    """What its calls are credited with."""
    has_gradient: bool = False
    """Any call that may be trained has an advantage other than zero."""
    elite_key: str = ""
    elite_bytes: int = 0
    """Bound of its rows' size."""
    origin: str = "first"
    """`first`, `resample` or `replay` (C3)."""
    fate: str = ""
    """What is on record: nothing yet, `ready` or `dropped`."""
    ready_at_s: float = 0.0

    @property
    def advantage(self) -> float:
        """The execution's, relative to its group."""
        return self.credit.advantage

    @property
    def is_truncated(self) -> bool:
        return self.ended.ending == "timed_out"


@dataclass(frozen=True, slots=True)
class Sample:
    """A built sample: what is said of it, its training rows, and the tree they are from."""

    ready: SampleReady
    rows: list[Row]
    tree: Tree
    leaves: list[int]
    """Leaf nodes of the chosen paths."""


@dataclass(frozen=True, slots=True)
class InTraining:
    """What is remembered of a sample whose group was taken, until the update of its step."""

    ended: ExecutionEnded
    policy_version: int
    """v_d."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """A sample that the trainer set aside."""

    sample_id: str
    sample: InTraining
    step: int
    why: str


@dataclass(slots=True)
class Group:
    """One query sampled N times."""

    group_id: str
    execution_ids: list[str] = field(default_factory=list)
    task_id: str = ""
    task_type: str = ""
    tenant: str = ""
    policy_version: int = 0
    """v_d."""
    order: int = 0
    """Ordinal of its dispatch."""
    attempt_base: int = 0
    is_dispatched: bool = False
    """False while only words of its executions were seen."""
    members: dict[str, Member] = field(default_factory=dict)
    verdicts: list[Verdict] | None = None
    """One for each member, in order, once all have ended."""
    samples: dict[str, Sample] = field(default_factory=dict)
    """Built samples, made when first needed."""
    set_aside: dict[str, CallSetAside] = field(default_factory=dict)
    """Calls left out of their trees whose fact is not on record yet."""
    dropped_step: int = -1
    """Step whose batch would have taken it, had it not been too old."""

    def member(self, execution_id: str) -> Member:
        """Made when it is first heard of. Attempts count from attempt_base + 1 once a group is sent again."""
        if execution_id not in self.members:
            self.members[execution_id] = Member(execution_id, self.attempt_base + 1 if self.attempt_base else 0)
        return self.members[execution_id]

    @property
    def dispatched_members(self) -> list[Member]:
        """In order; none before it is dispatched."""
        return [self.member(name) for name in self.execution_ids]

    @property
    def is_complete(self) -> bool:
        return self.is_dispatched and all(member.is_complete for member in self.dispatched_members)

    @property
    def trainable(self) -> list[Verdict]:
        """Members that may be trained."""
        return [verdict for verdict in self.verdicts or [] if not verdict.drop]

    @property
    def undropped(self) -> list[Verdict]:
        """Trainable members that no fact has dropped."""
        return [verdict for verdict in self.trainable if verdict.fate != "dropped"]

    @property
    def is_dropped(self) -> bool:
        """Of every member, trainable or not, it is on record that it was dropped: nothing more is to be said of the group."""
        return all(verdict.fate == "dropped" for verdict in self.verdicts or [])

    @property
    def age_key(self) -> tuple[int, int]:
        """Oldest dispatch version first, then order of dispatch."""
        return self.policy_version, self.order


@dataclass(slots=True)
class Taken:
    """A group's part in the open batch."""

    group_id: str
    task_type: str
    policy_version: int
    executions: int
    """All N that were dispatched: the law of staleness counts them all."""
    sample_ids: list[str]
    """Those that count in the divisor."""
    turns: int
    truncated: int
    """Timed-out ones among sample_ids."""
    kept: int
    """Samples that give a gradient."""
    failed: int
    """Unsuccessful ones among `kept`."""
    origins: dict[str, int]
    """Origin → how many of sample_ids."""
    dropped: dict[str, str]
    """Sample → reason (`no_gradient`, `quota`, `truncated`): dropped as the group is taken."""
    micro_ids: list[str] | None = None
    """None until the fact BatchExtended is on record."""
    untrained_targets: int = 0
    """As the fact says: target tokens of its executions without gradient."""
    untrained_sequences: int = 0


@dataclass(slots=True)
class Batch:
    """The batch of the open step."""

    step: int
    opened_at_s: float
    taken: dict[str, Taken] = field(default_factory=dict)
    held: dict[str, Group] = field(default_factory=dict)
    """Groups taken whose micro-steps are sent when the batch closes."""
    begun_at_s: float | None = None
    """When the first group was taken."""
    overdue: BatchOverdue | None = None
    """Newest word on what had not arrived when the wait was over."""
    closing: str = ""
    """Cause, once it is decided that nothing more is taken."""

    @property
    def turns(self) -> int:
        return sum(taken.turns for taken in self.taken.values())

    @property
    def executions(self) -> int:
        """Those that count in the divisor."""
        return sum(len(taken.sample_ids) for taken in self.taken.values())

    @property
    def truncated(self) -> int:
        return sum(taken.truncated for taken in self.taken.values())

    @property
    def origins(self) -> Counter[str]:
        """Those that count in the divisor, by origin."""
        return sum((Counter(taken.origins) for taken in self.taken.values()), Counter())

    def turns_through(self, group_id: str) -> int:
        """Accumulated turns up to and including a group, in the order of taking."""
        total = 0
        for name, taken in self.taken.items():
            total += taken.turns
            if name == group_id:
                break
        return total

    def of_type(self, task_type: str) -> tuple[int, int]:
        """Kept samples of a task type, and the failed ones among them."""
        same = [taken for taken in self.taken.values() if taken.task_type == task_type]
        return sum(taken.kept for taken in same), sum(taken.failed for taken in same)


def sample_of(ended: ExecutionEnded) -> str:
    return ids.sample_id(ended.execution_id, ended.attempt)
