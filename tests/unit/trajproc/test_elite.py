"""The elite store (D9): what it admits, how it is bounded, what it replays, and that nothing of it stands in the batch's own books."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from gyre import ids
from gyre import records as r
from services.trajproc.core.elite import Elite, EliteStore, is_turning, key_of
from services.trajproc.core.messages import sample_of_group
from services.trajproc.core.rows import make_rows
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree
from services.trajproc.elite_files import EliteFiles
from tests.unit.trajproc.builders import Live, call, config, dispatched, execution, group, opened, started, submitted
from tests.unit.trajproc.test_trajproc_restart import SETTINGS, Mortal, World, scripts, timeless

A, B, C, D = (ids.group_id(index) for index in range(4))


def elite(number: int, *, size: int = 10, turning: bool = False, version: int = 0, origin: str = "first") -> Elite:
    name = ids.group_id(number)
    return Elite(f"k{number}", f"{name}-e0-a1", name, "repair", origin, version, size, turning, order=0)


def keys(store: EliteStore) -> list[str]:
    return [one.key for one in store]


def test_a_turning_point_is_a_success_where_most_failed():
    """1 of 4 succeeded: yes; 2 of 4: half, no; alone in its group: no."""
    assert is_turning(1, 4) and not is_turning(2, 4) and not is_turning(1, 1)


def test_the_oldest_leaves_first_and_turning_points_last():
    """Room for three: 0 is a turning point; when 3 comes 1, the oldest of the others, leaves. Of turning points alone the oldest leaves."""
    store = EliteStore(3, 1000)
    assert [store.admit(elite(number, turning=number == 0)) for number in range(3)] == [[], [], []]
    assert store.admit(elite(3)) == ["k1"] and keys(store) == ["k0", "k2", "k3"]
    assert store.admit(elite(2)) == [] and store.repeats == 1, "the same solution is held once"
    only = EliteStore(1, 1000)
    only.admit(elite(0, turning=True))
    assert only.admit(elite(1)) == ["k1"], "what is no turning point does not drive one out"


def test_what_is_too_large_is_not_held_and_drives_nothing_out_that_is_worth_more():
    """100 bytes: a turning point of 60 stays, one of 120 leaves at once, and so does what came with it."""
    store = EliteStore(10, 100)
    store.admit(elite(0, size=60, turning=True))
    assert store.admit(elite(1, size=120)) == ["k1"] and (keys(store), store.bytes) == (["k0"], 60)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 60), st.booleans(), st.integers(0, 9))),
    st.integers(1, 5),
    st.integers(1, 150),
)
def test_the_store_is_bounded_by_count_and_bytes_whatever_comes(offered, count_max, bytes_max):
    """D9: never over either bound; the bytes are those of what is held; no key twice; what leaves is named once."""
    store, inside = EliteStore(count_max, bytes_max), set()
    for number, size, turning, version in offered:
        inside.add(f"k{number}")
        inside -= set(store.admit(elite(number, size=size, turning=turning, version=version)))
        assert len(store) <= count_max and store.bytes <= bytes_max
        assert store.bytes == sum(one.bytes for one in store) and set(keys(store)) == inside
    inside -= set(store.expire(9, 4))
    assert set(keys(store)) == inside and all(9 - one.policy_version <= 4 for one in store)


def test_the_least_replayed_go_first_and_replays_are_not_mixed_with_resamples():
    """D9, C3: three held, 1 a turning point, 2 a resample: 1 before 0; beside a batch with replays 2 is left out; a group of the batch is, too."""
    store = EliteStore(9, 900)
    for found in (elite(0), elite(1, turning=True), elite(2, origin="resample")):
        store.admit(found)
    assert [one.key for one in store.choose(9, [], ["first"])] == ["k1", "k0", "k2"]
    assert [one.key for one in store.choose(9, [], ["replay"])] == ["k1", "k0"]
    assert [one.key for one in store.choose(9, [ids.group_id(1)], [])] == ["k0", "k2"]
    store.replayed(["g000001-e0-a1"])
    assert [one.key for one in store.choose(1, [], [])] == ["k0"]


def save(processor, files: dict) -> None:
    """What the shell does: rows that the store has come to hold are kept."""
    for key, (found, verdict) in processor.unsaved.items():
        files.setdefault(key, sample_of_group(found, verdict, processor.config, 0.0).rows)
    processor.unsaved.clear()


class Holding(Live):
    """A processor whose shell keeps the rows of the elite store in memory, as the files would."""

    def __init__(self, settings, past=None, files: dict | None = None, is_streaming: bool = True) -> None:
        self.files = {} if files is None else files
        super().__init__(settings, past, is_streaming)

    def act(self, now_s: float) -> None:
        self.processor.elite_rows = self.files.get
        super().act(now_s)
        save(self.processor, self.files)


def settings(**changes):
    return config(**{"turns_per_step": 4, "elite_share": 0.25, **changes})


def solved(name: str, outcomes: list[float], turns: int = 1, version: int = 0) -> list:
    return [submitted(name), *group(name, outcomes, turns=turns, version=version)]


def test_without_a_share_there_is_no_store():
    """Default: nothing is held, no key is said, no micro-step is added."""
    live = Holding(config(turns_per_step=4)).see(
        opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]), opened(1), *solved(B, [1.0, 0, 0, 0])
    )
    assert (
        not live.files
        and len(live.processor.elites) == 0
        and not any(fact.elite_key for fact in live.all(r.SampleReady))
    )
    assert live.batch().elites == []


def test_a_success_is_held_when_a_batch_has_trained_it_and_replayed_beside_the_next():
    """D9: batch 0 trains A; of its four one succeeded. Batch 1 has four executions, a quarter is one: A's success is trained again, in a micro-step
    of its own that is marked, with the rows it had. The batch's own figures are what they would be without; only divisor and micro-steps know."""
    live = Holding(settings()).see(opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]))
    assert live.batch().elites == [] and [one.sample_id for one in live.processor.elites] == [f"{A}-e0-a1"]
    (held,) = live.processor.elites
    assert held.is_turning and held.key == live.all(r.SampleReady)[0].elite_key
    live.see(opened(1), *solved(B, [1.0, 0.0, 0.0, 0.0], turns=1, version=1))
    closed = live.batch()
    assert closed.elites == [f"{A}-e0-a1"] and closed.divisor == 5
    assert (closed.groups, closed.turns, closed.staleness_max, len(closed.sample_ids)) == ([B], 4, 0, 4)
    micro = live.queue[-1]
    assert micro.is_elite and micro.micro_id == closed.micro_ids[-1] == f"s000001-elite-{held.key[:16]}-m0"
    assert micro.rows == live.files[held.key] and {row.sample_id for row in micro.rows} == {f"{A}-e0-a1"}
    assert not any(one.is_elite for one in live.queue[:-1])


def test_the_same_solution_of_the_same_task_is_held_once():
    """D9: both groups' first members sample the same tokens. Of one task they are one; of two tasks, two."""
    same = [
        msgspec.structs.replace(fact, task=msgspec.structs.replace(fact.task, task_id="t"))
        for fact in map(submitted, (A, B))
    ]
    live = Holding(settings()).see(
        opened(0), *same, *group(A, [1.0, 0.0, 0.0, 0.0]), opened(1), *group(B, [1.0, 0, 0, 0], version=1)
    )
    assert len(live.processor.elites) == 1
    other = Holding(settings()).see(
        opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]), opened(1), *solved(B, [1.0, 0, 0, 0], version=1)
    )
    assert len(other.processor.elites) == 2


def test_failures_drops_and_samples_without_gradient_are_not_held():
    """D9: B's two succeed both and give no gradient; C's success is above no line; its failed member is not a success."""
    live = Holding(settings()).see(opened(0), *solved(B, [1.0, 1.0]), *solved(C, [1.0, 0.0]))
    assert [one.sample_id for one in live.processor.elites] == [f"{C}-e0-a1"]


def test_the_same_solution_has_the_same_key_whatever_else_was_called_before_it():
    """D9: two main calls of the same tokens; in the second execution a side call came before them and one between, so the two are numbered 1 and 3.
    Other tokens, or targets of one call instead of two, are another solution."""

    def key(*calls) -> str:
        tree = build_tree(calls)
        return key_of(A, make_rows(tree, choose_paths(tree, "s", 5), "s", np.ones(len(tree.calls)), 4096))

    first, second = call([1, 2], [3, 4]), call([5], [6], index=1, parent=0, cut=4)
    plain = key(first, second)
    side, between = call([9], [9, 9], role="side"), call([8], [8], index=2, role="side")
    assert plain == key(side, call([1, 2], [3, 4], index=1), between, call([5], [6], index=3, parent=1, cut=4))
    assert plain != key(first, call([5], [7], index=1, parent=0, cut=4))
    assert key(call([1, 2], [3, 4])) != key(call([1, 2], [3]), call([], [4], index=1, parent=0, cut=3))


def test_what_the_next_step_would_find_too_old_leaves():
    """C8, D9: cap 1: A (v_d 0) may be replayed in step 1 and leaves when it closes."""
    live = Holding(settings(age_steps_max=1)).see(opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]))
    live.see(opened(1), *solved(B, [1.0, 1.0, 1.0, 0.0], version=1))
    assert live.batch().elites == [f"{A}-e0-a1"]
    assert {one.group_id for one in live.processor.elites} == {B}


@pytest.mark.parametrize("has_files", [True, False])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_restart_holds_what_was_held_and_makes_lost_rows_again(has_files, is_streaming):
    """D9: the facts tell what is held and how often it was replayed; rows whose file is lost are made from the records, which are folded anyway."""
    live = Holding(settings(), is_streaming=is_streaming).see(started(), opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]))
    live.see(opened(1), *solved(B, [1.0, 0.0, 0.0, 0.0], version=1))
    again = Live(settings(), past=live.stream, is_streaming=is_streaming)
    assert again.said == []
    assert [(one.key, one.replays) for one in again.processor.elites] == [
        (one.key, one.replays) for one in live.processor.elites
    ]
    assert set(again.processor.unsaved) == {one.key for one in live.processor.elites}
    kept, sample = again.processor.unsaved[next(iter(again.processor.elites)).key]
    assert key_of(A, sample_of_group(kept, sample, settings(), 0.0).rows) == next(iter(live.processor.elites)).key
    if has_files:
        again.processor.elite_rows = live.files.get
    again.see(opened(2), *solved(C, [1.0, 0.0, 0.0, 0.0], version=2))
    assert len(again.batch().elites) == has_files, "what is lost is passed over"


def test_dying_between_a_replay_and_the_closed_batch_sends_the_same_again():
    """C5: the micro-step's name is made of its content, so a repeat is the same message; the batch lists it once."""
    live = Holding(settings()).see(opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]), opened(1))
    facts = solved(B, [1.0, 0.0, 0.0, 0.0], version=1)
    live.see(*facts)
    cut = live.stream.index(live.batch())
    again = Holding(settings(), past=live.stream[:cut], files=live.files)
    assert [micro.micro_id for micro in again.queue] == [live.queue[-1].micro_id]
    assert again.queue[0].rows == live.queue[-1].rows and again.batch().micro_ids == live.batch().micro_ids


@settings_of(max_examples=40, deadline=None)
@given(scripts(), SETTINGS, st.sampled_from([0.3, 1.0]), st.integers(1, 60), st.booleans())
def test_a_kill_at_any_message_replays_the_same(script, settings_, share, lives, is_streaming):
    """D9, restart: whatever was said and saved when the processor died, the same facts follow. A replay is of a success that an earlier batch has
    trained, beside another group's batch, inside the age cap, and never counted among the batch's own."""
    settings_ = msgspec.structs.replace(settings_, elite_share=share, elite_count_max=3)

    class MortalHolding(Mortal):
        files: dict = {}  # outlives the process

        def act(self, now_s: float) -> None:
            self.processor.elite_rows = self.files.get
            super().act(now_s)
            save(self.processor, self.files)

    class HoldingWorld(World):
        mortal = MortalHolding

    whole = HoldingWorld(script, settings_, is_streaming=is_streaming).run()
    MortalHolding.files = {}
    broken = HoldingWorld(script, settings_, lives, is_streaming=is_streaming).run()
    assert list(map(timeless, broken.facts)) == list(map(timeless, whole.facts))
    trained: set[str] = set()
    versions = {fact.sample_id: fact.policy_version for fact in broken.facts if isinstance(fact, r.SampleReady)}
    solved_ = {fact.sample_id for fact in broken.facts if isinstance(fact, r.SampleReady) and fact.success}
    own = replayed = 0
    for closed in [fact for fact in broken.facts if isinstance(fact, r.BatchClosed)]:
        assert set(closed.elites) <= trained & solved_ and not set(closed.elites) & set(closed.sample_ids)
        assert all(closed.step - versions[name] <= settings_.age_steps_max for name in closed.elites)
        assert len(set(closed.elites)) == len(closed.elites)
        own, replayed = own + closed.divisor - len(closed.elites), replayed + len(closed.elites)
        assert replayed <= share * own + 1e-6
        trained |= set(closed.sample_ids)
    rows: dict[str, list] = {}
    assert all(rows.setdefault(micro.micro_id, micro.rows) == micro.rows for micro in broken.queue)


def test_files_hold_what_the_store_holds_and_a_broken_one_is_passed_over(tmp_path):
    """D9: saved whole, read back as it was; garbage and strangers are no rows."""
    live = Holding(settings()).see(opened(0), *solved(A, [1.0, 0.0, 0.0, 0.0]))
    ((key, rows),) = live.files.items()
    files = EliteFiles(tmp_path / "elite")
    assert files.rows(key) is None and key not in files
    files.keep_only([])
    files.save(key, rows)
    assert key in files and files.rows(key) == rows
    (tmp_path / "elite" / "broken.rows").write_bytes(b"no rows")
    assert files.rows("broken") is None
    files.keep_only([key])
    assert [path.name for path in (tmp_path / "elite").iterdir()] == [f"{key}.rows"]
    live.processor.elite_rows = files.rows
    live.see(opened(1), dispatched(B, 4, 1), *[f for m in range(4) for f in execution(B, m, float(not m), version=1)])
    assert live.batch().elites == [f"{A}-e0-a1"]


def test_a_small_share_replays_beside_every_few_batches():
    """D9: a tenth of batches of four executions is two of five batches, the third and the fifth; it is not none for ever. .1 cannot be
    written in binary, and ten times it is one all the same."""
    live = Holding(settings(elite_share=0.1, age_steps_max=50))
    for step in range(21):
        live.see(opened(step), *solved(f"g{step:06d}", [1.0, 0.0, 0.0, 0.0], version=step))
    counts = [len(closed.elites) for closed in live.all(r.BatchClosed)]
    assert counts == [0, 0, 1, 0, 1] * 4
