"""Restart equivalence and the invariants of batches under any history (C5, C8)."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre import records as r
from gyre.bus.subjects import natural_key
from services.trajproc.core.alarms import SERVICE
from services.trajproc.core.batch import check_promises
from tests.unit.scheduler.facts import running
from tests.unit.trajproc.builders import Live, config, dispatched, ended, execution, opened, started, submitted

OURS = (r.SampleReady, r.SampleDropped, r.BatchExtended, r.BatchOverdue, r.BatchClosed, r.AlarmRaised)


STEPS_MAX = 8


class Killed(Exception):
    """The process was killed."""


class Mortal(Live):
    """Dies once `lives` messages are durable, before it could note the last."""

    lives = -1

    def act(self, now_s: float) -> None:
        while self.processor.intents:
            intent = next(iter(self.processor.intents))
            for record in self.processor.records(intent, self.clock_s(now_s)):
                self.said.append(record)
                (self.queue if isinstance(record, r.MicroStep) else self.stream).append(record)
                self.lives -= 1
                if self.lives == 0:
                    raise Killed
                self.processor.fold(record)
            assert intent not in self.processor.intents


class World:
    """Others' facts by script; a step opens when the last one's batch is closed."""

    mortal = Mortal

    def __init__(
        self,
        script,
        settings,
        lives: int = -1,
        ahead: int = 0,
        ticks: frozenset[int] = frozenset(),
        is_streaming: bool = True,
        first: int = 0,
    ) -> None:
        """`first`: the step that is open first; what was dispatched for earlier ones may be too old for it when it ends."""
        self.first = first
        self.script, self.settings, self.ahead, self.ticks = list(script), settings, ahead, ticks
        self.is_streaming = is_streaming
        self.live = self.mortal(settings, is_streaming=is_streaming)
        self.live.lives = lives
        self.said: list = []
        self.queue: list[r.MicroStep] = []

    def run(self) -> "World":
        place, before = 0, self.first - 1
        step = before
        while True:
            closed = max((fact.step for fact in self.live.stream if isinstance(fact, r.BatchClosed)), default=before)
            if closed == step and step < self.first + STEPS_MAX:
                step += 1
                facts = [opened(step)]
            elif place < len(self.script):
                facts = [self.script[place]]
                place += 1
            else:
                break
            try:
                self.live.see(*facts)
                if place in self.ticks:
                    self.live.tick(1e6)
            except Killed:
                unseen = self.script[place : place + self.ahead]
                place += len(unseen)
                self._restart([*self.live.stream, *unseen])
        self.said += self.live.said
        self.queue += self.live.queue
        return self

    def _restart(self, stream: list) -> None:
        self.said += self.live.said
        self.queue += self.live.queue
        self.live = self.mortal(self.settings, past=stream, is_streaming=self.is_streaming)

    @property
    def facts(self) -> list:
        return [fact for fact in self.live.stream if isinstance(fact, OURS)]


def timeless(fact):
    return msgspec.structs.replace(fact, at_s=0.0, **({"waited_s": 0.0} if isinstance(fact, r.SampleDropped) else {}))


@st.composite
def scripts(draw, origins: bool = False):
    """Groups of two or three executions in bursts of dispatch, endings interleaved in any order; with `origins` some are resampled or replayed."""
    version, facts, open_members = 0, [started()], []
    number = draw(st.integers(1, 6))
    facts += [submitted(ids.group_id(index)) for index in range(number)]
    for index in range(number):
        version += draw(st.integers(0, 2))
        members = draw(st.integers(2, 3))
        facts.append(dispatched(ids.group_id(index), members, version))
        for member in range(members):
            kind = draw(st.integers(0, 9))
            if kind == 0:
                story = [ended(ids.group_id(index), member, None, ending="failed", calls=0)]
            else:
                ending = "timed_out" if kind == 1 else "completed"
                outcome, turns = draw(st.sampled_from([0.0, 0.5, 1.0])), draw(st.integers(1, 2))
                attempt = 2 if origins and kind in (2, 3) else 1
                story = execution(
                    ids.group_id(index), member, outcome, turns=turns, version=version, ending=ending, attempt=attempt
                )
                begun = running(ids.execution_id(ids.group_id(index), member), attempt)
                story.insert(1, msgspec.structs.replace(begun, is_replay=kind == 3))
            open_members.append(story)
        for _ in range(draw(st.integers(0, 3))):
            if open_members:
                facts += open_members.pop(draw(st.integers(0, len(open_members) - 1)))
    for place in draw(st.permutations(range(len(open_members)))):
        facts += open_members[place]
    return facts


SETTINGS = st.builds(
    config,
    turns_per_step=st.integers(1, 8),
    age_steps_max=st.integers(1, 4),
    failed_share_max=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    micro_tokens=st.sampled_from([4, 12, 4096]),
    truncated_share_max=st.just(0.2),
    missing=st.sampled_from(["later", "wait", "truncate", "drop"]),
    # With segments of one call and a critic that learns a repeat has the same content only if the critic has learned the same in the same order.
    credit=st.sampled_from(["execution", "turn", "segment", "fusion"]),
    critic=st.sampled_from(["group_mean", "tabular"]),
    segment_calls_max=st.integers(1, 2),
)


FIRST = st.sampled_from([0, 0, 4, 12])
"""The step that is open first: at 12 every group is too old for it when its last member ends."""


def check_whole(world: World, settings_) -> None:
    """What holds of every history, however often the processor was killed."""
    keys = [natural_key(fact) for fact in world.facts]
    assert len(keys) == len(set(keys)), "nothing is said twice"
    extended = [fact for fact in world.facts if isinstance(fact, r.BatchExtended)]
    listed = [name for fact in extended for name in fact.micro_ids]
    open_batch = world.live.processor.batch
    held = (
        []
        if open_batch is None or world.is_streaming
        else [n for t in open_batch.taken.values() for n in t.micro_ids or []]
    )
    assert {micro.micro_id for micro in world.queue} == set(listed) - set(held), (
        "no micro-step without a batch, none missing"
    )
    pieces: dict[str, list] = {}
    for micro in world.queue:
        assert pieces.setdefault(micro.micro_id, micro.rows) == micro.rows, "a repeat has the same content"
    batches = [fact for fact in world.facts if isinstance(fact, r.BatchClosed)]
    drops = [fact.sample_id for fact in world.facts if isinstance(fact, r.SampleDropped)]
    consumed: list[str] = []
    for closed in batches:
        check_promises(closed, settings_)
        parts = [fact for fact in extended if fact.step == closed.step]
        assert [part.group_id for part in parts] == closed.groups
        assert sum(part.turns for part in parts) == closed.turns == (parts[-1].turns_total if parts else 0)
        counted = [name for part in parts for name in part.sample_ids]
        assert closed.sample_ids == [name for name in counted if name not in drops]
        assert closed.divisor == max(1, len(counted))
        consumed += closed.groups
    assert len(consumed) == len(set(consumed)), "a group is in one batch"
    trained = {row.sample_id for rows in pieces.values() for row in rows}
    if world.live.processor.batch is None or not world.live.processor.batch.taken:
        assert trained == {name for closed in batches for name in closed.sample_ids}
    assert not trained & set(drops), "a sample is trained or dropped, never both"
    counted = {ids.split_sample_id(name)[0] for fact in extended for name in fact.sample_ids} | {
        ids.split_sample_id(name)[0] for name in drops
    }
    for fact in world.live.stream:
        if isinstance(fact, r.GroupDispatched) and fact.group_id in world.live.processor.done:
            assert counted >= set(fact.execution_ids), "a group that is over was trained or dropped, every member of it"
    ready = {fact.sample_id for fact in world.facts if isinstance(fact, r.SampleReady)}
    waiting = {verdict.sample_id for group in world.live.processor.groups.values() for verdict in group.undropped}
    assert ready == (trained | waiting | set(drops)) & ready, "what was ready is trained, dropped or waits"


@settings(max_examples=60, deadline=None)
@given(scripts(), SETTINGS)
def test_batches_keep_their_promises_under_any_history(script, settings_):
    """C5, C8, C10: turns reach the target or the cause says why not, the cap and the quota hold, oldest first."""
    world = World(script, settings_).run()
    check_whole(world, settings_)
    versions = {fact.group_id: fact.policy_version for fact in script if isinstance(fact, r.GroupDispatched)}
    waiting: set[str] = set()
    for fact in world.live.stream:
        if isinstance(fact, r.SampleReady):
            waiting.add(fact.group_id)
        elif isinstance(fact, r.SampleDropped) and fact.reason == "age":
            waiting.discard(fact.group_id)
        elif isinstance(fact, r.BatchExtended):
            waiting.discard(fact.group_id)
            assert all(versions[fact.group_id] <= versions[other] for other in waiting), "oldest first"


@settings(max_examples=60, deadline=None)
@given(scripts(origins=True), SETTINGS, st.integers(1, 60), st.booleans(), FIRST)
def test_a_kill_at_any_message_changes_nothing_and_repeats_no_fact(script, settings_, lives, is_streaming, first):
    """State is a fold: a run that was killed after any message says the same facts, in the same order, as one that was not."""
    whole, broken = [
        World(script, settings_, dies, is_streaming=is_streaming, first=first).run() for dies in (-1, lives)
    ]
    check_whole(broken, settings_)
    assert list(map(timeless, broken.facts)) == list(map(timeless, whole.facts))
    rows = {micro.micro_id: micro.rows for micro in whole.queue}
    assert all(rows[micro.micro_id] == micro.rows for micro in broken.queue)
    assert len(broken.queue) - len(whole.queue) <= sum(1 for _ in broken.queue) - len(rows)


@settings(max_examples=60, deadline=None)
@given(
    scripts(origins=True),
    SETTINGS,
    st.integers(1, 40),
    st.integers(0, 12),
    st.frozensets(st.integers(0, 40), max_size=3),
    st.booleans(),
    FIRST,
)
def test_a_kill_while_others_go_on_and_time_passes_leaves_no_orphan(
    script, settings_, lives, ahead, ticks, is_streaming, first
):
    """C5: facts that came while the processor was down, and batches that time closed, do not change what was sent already."""
    check_whole(World(script, settings_, lives, ahead, ticks, is_streaming, first).run(), settings_)


@settings(max_examples=40, deadline=None)
@given(scripts(origins=True), SETTINGS)
def test_a_second_start_on_a_finished_run_says_nothing(script, settings_):
    """State is a fold: everything on record, nothing to say; repeats of any fact change nothing."""
    world = World(script, settings_).run()
    assert Live(settings_, past=[fact for fact in world.live.stream for _ in range(2)]).said == []
    assert all(fact.service == SERVICE for fact in world.facts if isinstance(fact, r.AlarmRaised))
