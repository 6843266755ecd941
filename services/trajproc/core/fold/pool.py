"""What the fold remembers, and how its parts are found: groups in flight, the open batch, decisions that are still to be said."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gyre.config import EvaluatorConfig, TrajprocConfig
from gyre.records import Row
from services.trajproc.core import batch as batches
from services.trajproc.core.credit import make_critic
from services.trajproc.core.crediting import give_credit
from services.trajproc.core.elite import EliteStore
from services.trajproc.core.running import RunningRewards
from services.trajproc.core.scoring import GamingWatch, Question, open_questions
from services.trajproc.core.spans import GroupNames, Spans
from services.trajproc.core.state import Batch, Group, InTraining, Verdict
from services.trajproc.core.tree import Known
from services.trajproc.core.waiting import ByAge

NO_NEWS = object()
"""What a handler answers when nothing that decisions depend on has changed (most call records)."""


class Intent(NamedTuple):
    """A decision whose facts are still to be said, and of what. The kinds are the keys of `speak.SPEAKERS`."""

    kind: str
    key: str


class Pool:
    """State only; the handlers of facts and the decisions change it."""

    def __init__(
        self,
        config: TrajprocConfig,
        payload_bytes_max: int,
        is_streaming: bool = True,
        evaluators: Sequence[EvaluatorConfig] = (),
        vocabulary: int = 0,
    ) -> None:
        """`payload_bytes_max` bounds one message's rows. Without streaming (A9) micro-steps are sent when their batch closes. `vocabulary`: token
        ids are below, 0 where that is not known."""
        self.config = config
        self.payload_bytes_max = payload_bytes_max
        self.is_streaming = is_streaming
        self.evaluators = tuple(evaluators)
        self.questions: dict[str, list[Question]] = {}
        """Group → what is still to be asked about its executions; the shell asks, and the answers come as facts (D4)."""
        self.questions_changed = 0
        """Counts the changes of `questions`."""
        self.tasks: dict[str, str] = {}
        """Group → its task's id, from submission on."""
        self.elites = EliteStore(config.elite_count_max, config.elite_bytes_max)
        self.elites_owed = 0.0
        """What the shares of earlier batches left over, below one execution: a small share replays one beside every few batches."""
        self.elite_rows: Callable[[str], list[Row] | None] = lambda _key: None
        """Rows of the elite store by key, None where they are lost; the shell's to give."""
        self.unsaved: dict[str, tuple[Group, Verdict]] = {}
        """Key → what the elite store holds of which the shell has to keep the rows."""
        self.payloads: dict[str, dict[str, Any]] = {}
        """Group → its task's payload, for evaluators."""
        self.evaluations_failed: Counter[str] = Counter()
        """Evaluator → executions of which it could not be had (B4)."""
        self.evaluator_streaks: Counter[str] = Counter()
        """Evaluator → executions in a row that it could not judge."""
        self.gaming = GamingWatch(config.gaming_window)
        self.critic = make_critic(config.critic, config.critic_memory)
        """Learns from groups in the order in which they are judged, which is that of the facts that completed them."""
        self.running = RunningRewards(config.baseline_memory)
        self.groups: dict[str, Group] = {}
        self.unfinished = ByAge()
        """Dispatched groups that are not judged yet."""
        self.ready = ByAge()
        """Judged groups that no batch has."""
        self.done = GroupNames()
        """Groups of which nothing more is wanted: trained, dropped, or never to be trained. Costs as much as what is in flight."""
        self.queued: set[str] = set()
        self.is_running = False
        self.has_work = False
        """Any group to be trained was ever heard of: before that a batch is not exhausted but early."""
        self.batch: Batch | None = None
        self.in_training: dict[int, dict[str, InTraining]] = {}
        """Step → samples of its micro-steps, until its update: the trainer may find one impossible."""
        self.step = 0  # optimizer steps done, as far as they were reported
        self.closed_step = -1
        self.intents: dict[Intent, Any] = {}
        self.short: set[tuple[str, str]] = set()
        """(Group, execution) that ended before all records that its ending counts were there; they may have come since."""
        self.dropped: Counter[str] = Counter()
        self.set_aside: Counter[str] = Counter()
        self.overdue: Counter[str] = Counter()
        """Executions that had not arrived when their batch's wait was over, by policy."""
        self.published = Spans()
        """Policy versions whose weights were published; the run begins with 0."""
        self.published.add(0)
        self.known = Known(self.published, vocabulary)
        """What call records are held against."""
        self.no_gradient_batches = 0
        self.no_gradient_streak = 0
        self.dispatches = 0
        self.boundary_version = -1
        """Newest boundary that the scheduler has spoken of."""
        self.burst = (-1, 0)
        """Newest burst, and the step it began with."""
        self.moved_at_s = 0.0
        """Newest dispatch, ending or step."""

    def is_over(self, step: int) -> bool:
        """Whether the step, which is done, is the newest that anything was sent for: nothing that was sent is wanted any more."""
        return step >= self.closed_step and (self.batch is None or self.batch.step <= step)

    # ---- groups in flight

    def group(self, group_id: str) -> Group | None:
        """The group, made when it is first heard of; None when nothing more is wanted of it."""
        if group_id in self.done:
            return None
        return self.groups.setdefault(group_id, Group(group_id, task_id=self.tasks.get(group_id, "")))

    def forget(self, group_id: str) -> None:
        self.done.add(group_id)
        if (group := self.groups.pop(group_id, None)) is not None:
            self.unfinished.discard(group)
            self.ready.discard(group)
        self.payloads.pop(group_id, None)
        self.tasks.pop(group_id, None)
        self.questions_changed += self.questions.pop(group_id, None) is not None
        self.queued.discard(group_id)
        for kind in ("set_aside", "tell", "take", "age"):
            self.said(kind, group_id)

    def settle(self, group: Group) -> object:
        """When the last member has ended, and every evaluator has had its say, what becomes of each is decided. NO_NEWS until then."""
        if group.verdicts is not None or self._ask(group) or not group.is_complete:
            return NO_NEWS
        group.set_aside = batches.leave_out(group)
        if group.set_aside:
            self.want("set_aside", group.group_id, group)
        group.verdicts = batches.judge(group, self.config, self.evaluators)
        give_credit(group, self.config, self.critic, self.running)
        self.want("tell", group.group_id, group)
        self.unfinished.discard(group)
        self.ready.add(group)
        return None

    def give_back(self, names: Iterable[str]) -> None:
        """Groups that a batch had taken and that did not go into it."""
        for name in names:
            if name in self.groups:
                self.ready.add(self.groups[name])

    def _ask(self, group: Group) -> list[Question]:
        """What evaluators are still to be asked of those of its executions that are all there, also before the others have ended."""
        whole = [member for member in group.dispatched_members if member.is_complete] if self.evaluators else []
        wanted = [one for member in whole for one in open_questions(member.ended, member.scores, self.evaluators)]
        if wanted != self.questions.get(group.group_id, []):
            self.questions_changed += 1
            self.questions[group.group_id] = wanted
            if not wanted:
                del self.questions[group.group_id]
        return wanted

    def verdicts(self, group_id: str, sample_id: str) -> list[Verdict]:
        """The verdict on a sample, or none when its group is not in flight."""
        group = self.groups.get(group_id)
        return [verdict for verdict in (group.verdicts or [] if group else []) if verdict.sample_id == sample_id]

    # ---- decisions to be said

    def want(self, kind: str, key: str, about: Any) -> None:
        """Something is to be said."""
        self.intents[Intent(kind, key)] = about

    def said(self, kind: str, key: str) -> bool:
        """It is on record, or not to be said any more; whether it was still to be said."""
        return self.intents.pop(Intent(kind, key), None) is not None
