"""The processor: a fold of facts that decides as it folds, and says afterwards what is not on record yet.

    fold(fact)     apply one fact of the stream, and decide what follows from it (which group is taken next, when a batch closes)
    tick(now_s)    decide what follows from time alone (the wait policy)
    intents        decisions whose facts are not on record, in the order they must be said
    records(i)     the messages of one intent; folding them confirms it

Decisions depend on the order of other services' facts and on nothing else, so a restart that folds the stream again decides
again what was decided, its own facts only confirm, and what is left among the intents is exactly what a crash cut off: it is said
again under the same names. That is why a micro-step can be sent before the fact that lists it: no restart can change its
mind about it. What time alone decided is one fact (BatchClosed) without anything said before it; where the
fold came to another view, the fact on record wins.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gyre import records as r
from gyre.config import TrajprocConfig
from services.trajproc.core import alarms, build, messages
from services.trajproc.core import batch as batches
from services.trajproc.core.state import Batch, Group, Verdict, sample_of

FOLDED = (
    r.RunStarted, r.GroupSubmitted, r.GroupDispatched, r.ExecutionLeased, r.ExecutionEnded, r.CallRecorded, r.StepOpened,
    r.StepUpdated, r.WaterlevelChanged, r.SampleReady, r.SampleDropped, r.BatchExtended, r.BatchClosed, r.AlarmRaised,
)  # fmt: skip
"""Facts that the processor follows: others' to decide by, its own to know what was said."""

STARVED_S = 5.0
"""A batch that nothing more can reach closes after this long: nothing is unfinished, and the scheduler has spoken of the boundary."""

NO_NEWS = object()
"""What a handler answers when nothing that decisions depend on has changed (most call records)."""


class Intent(NamedTuple):
    """A decision whose facts are still to be said: `tell`, `take`, `age`, `close`, `duplicate` or `alarm`, and of what."""

    kind: str
    key: str


class Processor:
    """State and decisions. `payload_bytes_max` bounds one message's rows. Without streaming (A9) micro-steps are sent when their batch closes."""

    def __init__(self, config: TrajprocConfig, payload_bytes_max: int, is_streaming: bool = True) -> None:
        self.config = config
        self.is_streaming = is_streaming
        self.payload_bytes_max = payload_bytes_max
        self.groups: dict[str, Group] = {}
        self.done: set[str] = set()
        """Groups of which nothing more is wanted: trained, dropped, or never to be trained."""
        self.queued: set[str] = set()
        self.is_running = False
        self.has_work = False
        """Any group to be trained was ever heard of: before that a batch is not exhausted but early."""
        self.batch: Batch | None = None
        self.step = 0  # optimizer steps done, as far as they were reported
        self.closed_step = -1
        self.intents: dict[Intent, Any] = {}
        self.dropped: Counter[str] = Counter()
        self.no_gradient_batches = 0
        self.no_gradient_streak = 0
        self._dispatches = 0
        self._boundary_version = -1
        """Newest boundary that the scheduler has spoken of."""
        self._burst = (-1, 0)
        """Newest burst, and the step it began with."""
        self._moved_at_s = 0.0  # newest dispatch, ending or step
        self._on: dict[type, Callable[[Any], object]] = {
            r.RunStarted: self._run_started, r.GroupSubmitted: self._submitted, r.GroupDispatched: self._dispatched,
            r.ExecutionLeased: self._leased, r.ExecutionEnded: self._ended, r.CallRecorded: self._called,
            r.StepOpened: self._opened, r.StepUpdated: self._updated, r.SampleReady: self._ready,
            r.SampleDropped: self._was_dropped, r.BatchExtended: self._extended, r.BatchClosed: self._closed,
            r.AlarmRaised: self._alarmed, r.WaterlevelChanged: self._waterlevel,
        }  # fmt: skip

    # ---- what the shell calls

    def fold(self, fact: Any) -> None:
        """Apply one fact; a repeat, and a type not in FOLDED, changes nothing."""
        handler = self._on.get(type(fact))
        if handler is not None and handler(fact) is not NO_NEWS:
            self._decide(fact.at_s)

    def tick(self, now_s: float) -> None:
        """The wait policy (C5)."""
        batch = self.batch
        if batch is None or batch.closing:
            return
        is_idle = self.is_running and self.has_work and not self.unfinished and not self.ready
        if batch.begun_at_s is not None and now_s - batch.begun_at_s >= self.config.wait_s:
            self._close("turns" if batch.turns >= self.config.turns_per_step else "wait")
        elif is_idle and now_s - max(batch.opened_at_s, self._moved_at_s) >= self.config.wait_s:
            self._close("wait")
        elif is_idle and self._boundary_version >= self._burst[1] and now_s - self._moved_at_s >= STARVED_S:
            self._close("exhausted")

    def records(self, intent: Intent, now_s: float) -> Iterator[Any]:
        """Messages of an intent that are not on record, in order. Lazy: each may be folded before the next is made."""
        about = self.intents[intent]
        match intent.kind:
            case "tell":
                yield from messages.tell(about, self.config, now_s)
            case "take":
                yield from messages.take(
                    about, self.batch, self.config, self.payload_bytes_max, now_s, self.is_streaming
                )
            case "age":
                yield from messages.drop_aged(about, now_s)
            case "close":
                for group in about.held.values():
                    yield from messages.micro_steps(group, about, self.config, self.payload_bytes_max, now_s)
                yield batches.closed(self.batch, self.config.turns_per_step, now_s)
            case "duplicate":
                yield build.dropped(about, sample_of(about), "duplicate", now_s, detail="an older attempt")
            case "alarm":
                yield about

    @property
    def ready(self) -> list[Group]:
        """Complete groups that no batch has, oldest dispatch version first."""
        taken = self.batch.taken if self.batch else {}
        waiting = [
            group for group in self.groups.values()
            if group.verdicts is not None and group.dropped_step < 0 and group.group_id not in taken
        ]  # fmt: skip
        return sorted(waiting, key=lambda group: group.age_key)

    @property
    def unfinished(self) -> list[Group]:
        """Dispatched groups with a member that has not ended."""
        return [group for group in self.groups.values() if group.is_dispatched and group.verdicts is None]

    # ---- others' facts

    def _run_started(self, _fact: r.RunStarted) -> None:
        self.is_running = True

    def _submitted(self, fact: r.GroupSubmitted) -> None:
        known = fact.group_id in self.done or (
            fact.group_id in self.groups and self.groups[fact.group_id].is_dispatched
        )
        if fact.task.purpose == "train" and not known:
            self.queued.add(fact.group_id)
            self.has_work = True

    def _dispatched(self, fact: r.GroupDispatched) -> None:
        if fact.purpose != "train":
            self._forget(fact.group_id)
        group = self._group(fact.group_id)
        if group is None:
            return
        self.queued.discard(fact.group_id)
        if group.is_dispatched and fact.attempt_base <= group.attempt_base:
            return
        if fact.attempt_base > 0 and not self._fence(group, fact.attempt_base):
            return
        self._moved_at_s = max(self._moved_at_s, fact.at_s)
        self._boundary_version = max(self._boundary_version, fact.policy_version)
        self._dispatches += 1
        self.has_work = True
        group.is_dispatched, group.order, group.attempt_base = True, self._dispatches, fact.attempt_base
        group.execution_ids, group.policy_version = list(fact.execution_ids), fact.policy_version
        group.task_type, group.tenant = fact.task_type, fact.tenant
        self._settle(group)

    def _fence(self, group: Group, attempt_base: int) -> bool:
        """A group that is sent again starts over; what its attempts up to `attempt_base` said no longer counts."""
        if (self.batch is not None and group.group_id in self.batch.taken) or group.dropped_step >= 0:
            return False
        gone = {verdict.sample_id for verdict in group.verdicts or [] if verdict.fate == "dropped"}
        self.intents.pop(Intent("tell", group.group_id), None)
        group.verdicts, group.samples = None, {}
        for member in group.members.values():
            ending = member.ended
            if ending is not None and ending.attempt <= attempt_base:
                member.stale.add(ending.attempt)
                member.ended = None
                if sample_of(ending) not in gone:
                    self.intents[Intent("duplicate", sample_of(ending))] = ending
            member.see(max(member.attempt, attempt_base + 1))
        return True

    def _leased(self, fact: r.ExecutionLeased) -> None:
        if (group := self._group(fact.group_id)) is not None:
            group.member(fact.execution_id).see(fact.attempt)

    def _called(self, fact: r.CallRecorded) -> object:
        if fact.purpose != "train" or (group := self._group(fact.group_id)) is None:
            return NO_NEWS
        member = group.member(fact.execution_id)
        if not member.see(fact.attempt) or group.verdicts is not None:
            return NO_NEWS
        member.calls.setdefault(fact.call_id, fact)
        if member.ended is None:
            return NO_NEWS
        return self._settle(group)

    def _ended(self, fact: r.ExecutionEnded) -> None:
        if fact.purpose != "train" or (group := self._group(fact.group_id)) is None:
            return
        self._moved_at_s = max(self._moved_at_s, fact.at_s)
        member = group.member(fact.execution_id)
        if member.see(fact.attempt):
            member.ended = member.ended or fact
            self._settle(group)
        elif fact.attempt not in member.stale:
            member.stale.add(fact.attempt)
            self.intents[Intent("duplicate", sample_of(fact))] = fact

    def _opened(self, fact: r.StepOpened) -> None:
        if fact.step <= self.closed_step or (self.batch is not None and self.batch.step == fact.step):
            return
        if fact.burst != self._burst[0]:
            self._burst = (fact.burst, fact.step)
        self._moved_at_s = max(self._moved_at_s, fact.at_s)
        self.step = max(self.step, fact.step)
        self.batch = Batch(fact.step, fact.at_s)

    def _updated(self, fact: r.StepUpdated) -> None:
        self.step = max(self.step, fact.version)

    def _waterlevel(self, fact: r.WaterlevelChanged) -> object:
        self._boundary_version = max(self._boundary_version, fact.policy_version)
        return NO_NEWS

    # ---- its own facts: they confirm

    def _ready(self, fact: r.SampleReady) -> None:
        group = self.groups.get(fact.group_id)
        for verdict in _verdicts(group, fact.sample_id):
            verdict.fate = verdict.fate or "ready"
            verdict.ready_at_s = fact.at_s
            self._confirm_told(group)

    def _was_dropped(self, fact: r.SampleDropped) -> None:
        was_pending = self.intents.pop(Intent("duplicate", fact.sample_id), None) is not None
        group = self.groups.get(fact.group_id)
        for verdict in _verdicts(group, fact.sample_id):
            was_pending |= verdict.fate != "dropped"
            verdict.fate = "dropped"
            self._confirm_told(group)
        self.dropped[fact.reason] += was_pending

    def _confirm_told(self, group: Group) -> None:
        if all(verdict.fate for verdict in group.verdicts):
            self.intents.pop(Intent("tell", group.group_id), None)
        if group.dropped_step >= 0 and not group.undropped:
            self._forget(group.group_id)

    def _extended(self, fact: r.BatchExtended) -> None:
        batch, group = self.batch, self.groups.get(fact.group_id)
        if batch is None or batch.step != fact.step or (group is None and fact.group_id not in batch.taken):
            return
        if fact.group_id not in batch.taken:
            self._reopen(batch)
            self._take(batch, group, fact.at_s)
        taken = batch.taken[fact.group_id]
        taken.micro_ids, taken.sample_ids, taken.turns = list(fact.micro_ids), list(fact.sample_ids), fact.turns
        if group is not None and not self.is_streaming:
            batch.held[fact.group_id] = group
        self._forget(fact.group_id)

    def _closed(self, fact: r.BatchClosed) -> None:
        batch = self.batch
        if fact.step <= self.closed_step:
            return
        self.closed_step = fact.step
        if batch is not None and batch.step == fact.step:
            self._reopen(batch)
            for name in set(batch.taken) - set(fact.groups):
                self.intents.pop(Intent("take", name), None)
            self.batch = None
        self.no_gradient_batches += fact.no_gradient
        self.no_gradient_streak = self.no_gradient_streak + 1 if fact.no_gradient else 0
        for alarm in alarms.of_batch(fact, self.no_gradient_streak, self.config):
            self.intents[Intent("alarm", alarms.key(alarm))] = alarm

    def _alarmed(self, fact: r.AlarmRaised) -> None:
        if fact.service == alarms.SERVICE:
            self.intents.pop(Intent("alarm", alarms.key(fact)), None)

    # ---- decisions

    def _settle(self, group: Group) -> None:
        """When the last member has ended, what becomes of each is decided."""
        if group.verdicts is None and group.is_complete:
            group.verdicts = batches.judge(group, self.config)
            self.intents[Intent("tell", group.group_id)] = group

    def _decide(self, at_s: float) -> None:
        """Take what is ready, oldest first; close what is complete. A group's last step is not let pass (wait rather than drop)."""
        batch, cap = self.batch, self.config.age_steps_max
        if batch is None or batch.closing:
            return
        for group in self.ready:
            age_steps = batch.step - group.policy_version
            if age_steps > cap:
                self._drop_aged(group, batch.step)
            elif batch.turns < self.config.turns_per_step or age_steps == cap:
                self._take(batch, group, at_s)
            else:
                break
        is_last_chance = any(batch.step - group.policy_version == cap for group in self.unfinished)
        if batch.turns >= self.config.turns_per_step:
            if not is_last_chance:
                self._close("turns")
        elif self.is_running and self.has_work and not self.queued and not self.unfinished:
            self._close("exhausted")

    def _take(self, batch: Batch, group: Group, at_s: float) -> None:
        batch.taken[group.group_id] = batches.take(group, batch, self.config)
        batch.begun_at_s = at_s if batch.begun_at_s is None else batch.begun_at_s
        self.intents[Intent("take", group.group_id)] = group

    def _drop_aged(self, group: Group, step: int) -> None:
        group.dropped_step = step
        if group.undropped:
            self.intents[Intent("age", group.group_id)] = group
        else:
            self._forget(group.group_id)

    def _close(self, cause: str) -> None:
        self.batch.closing = cause
        self.intents[Intent("close", str(self.batch.step))] = self.batch

    def _reopen(self, batch: Batch) -> None:
        batch.closing = ""
        self.intents.pop(Intent("close", str(batch.step)), None)

    # ---- the groups in flight

    def _group(self, group_id: str) -> Group | None:
        """The group, made when it is first heard of; None when nothing more is wanted of it."""
        return None if group_id in self.done else self.groups.setdefault(group_id, Group(group_id))

    def _forget(self, group_id: str) -> None:
        self.done.add(group_id)
        self.groups.pop(group_id, None)
        self.queued.discard(group_id)
        for kind in ("tell", "take", "age"):
            self.intents.pop(Intent(kind, group_id), None)


def _verdicts(group: Group | None, sample_id: str) -> list[Verdict]:
    """The verdict on a sample, or none when its group is not in flight."""
    return [verdict for verdict in (group.verdicts or [] if group else []) if verdict.sample_id == sample_id]
