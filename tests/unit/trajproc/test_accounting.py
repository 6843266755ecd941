"""Nothing lost and nothing twice, whatever arrives and wherever the processor dies (C5, C8, accounting.md)."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre import records as r
from tests.unit.trajproc.builders import Live, call, dispatched, ended, execution, leased, opened, started, submitted
from tests.unit.trajproc.test_trajproc_restart import FIRST, OURS, SETTINGS, Mortal, World, check_whole, timeless

SAID = (*OURS, r.CallSetAside)
BREAKS = {
    "lengths": lambda fact: {"logprobs": b"12345"},
    "logprobs": lambda fact: {"logprobs": r.pack([9.0] * (len(fact.logprobs) // 4), "float32")},
    "sampling": lambda fact: {"sampling": msgspec.structs.replace(fact.sampling, temperature=0.0)},
    "version_unknown": lambda fact: {"versions": r.pack([77] * (len(fact.versions) // 4), "int32")},
    "foreign_parent": lambda fact: {
        "parent": "nobody",
        "parent_tokens": 1,
        "prompt_tokens": 1 + len(fact.prompt_delta) // 4,
    },
}


@st.composite
def histories(draw):
    """Groups whose members are retried, fail, time out, send records that cannot be trusted, and say some things again, in any order of their own."""
    facts, stories, repeats = [started()], [], []
    number = draw(st.integers(1, 5))
    facts += [submitted(ids.group_id(index)) for index in range(number)]
    for index in range(number):
        group = ids.group_id(index)
        facts.append(dispatched(group, draw(st.integers(1, 3)), index // 2))
        for name in facts[-1].execution_ids:
            member, attempt = int(name.rpartition("-e")[2]), draw(st.integers(1, 2))
            ending = draw(st.sampled_from(["completed", "completed", "timed_out", "failed", "voided"]))
            if ending in ("failed", "voided"):
                story = [
                    leased(group, member, attempt),
                    ended(group, member, None, attempt=attempt, ending=ending, calls=0),
                ]
            else:
                outcome, turns = draw(st.sampled_from([0.0, 1.0])), draw(st.integers(1, 3))
                story = execution(group, member, outcome, turns=turns, ending=ending, attempt=attempt)
            if attempt == 2:
                story = [leased(group, member), call([1], [2], execution=name), *story]
                if draw(st.booleans()):
                    story.append(ended(group, member, 1.0))  # the older attempt ends after the newer one
            stories.append([_broken(draw, fact) for fact in story])
    while stories:
        story = stories[draw(st.integers(0, len(stories) - 1))]
        facts.append(story.pop(0))
        repeats += [facts[-1]] if draw(st.integers(0, 4)) == 0 else []
        stories = [story for story in stories if story]
    return facts + repeats


def _broken(draw, fact):
    if not isinstance(fact, r.CallRecorded) or draw(st.integers(0, 4)):
        return fact
    return msgspec.structs.replace(fact, **BREAKS[draw(st.sampled_from(sorted(BREAKS)))](fact))


class Counted(World):
    """Also counts what is set aside."""

    mortal = Mortal

    @property
    def facts(self) -> list:
        return [fact for fact in self.live.stream if isinstance(fact, SAID)]


def conserved(world: World, script: list) -> None:
    """dispatched = trained + dropped + in flight, by execution; an older attempt's ending is one `duplicate`, unless its
    group is over by then."""
    drops = [fact for fact in world.facts if isinstance(fact, r.SampleDropped)]
    trained = [
        row.sample_id for micro in {micro.micro_id: micro for micro in world.queue}.values() for row in micro.rows
    ]
    batches = [fact for fact in world.live.stream if isinstance(fact, r.BatchClosed)]
    processor = world.live.processor
    waiting = [verdict.sample_id for group in processor.groups.values() for verdict in group.undropped]
    closed = [name for batch in batches for name in batch.sample_ids]
    open_ids = [
        name for part in (processor.batch.taken if processor.batch else {}).values() for name in part.sample_ids
    ]
    leases = sorted((fact.execution_id, fact.attempt) for fact in script if isinstance(fact, r.ExecutionLeased))
    newest = dict(leases)
    wanted = {ids.sample_id(name, attempt) for name, attempt in newest.items()}
    gone = [drop.sample_id for drop in drops if drop.reason != "duplicate"]
    places = [*closed, *(set(open_ids) - set(gone)), *gone, *waiting]
    assert sorted(places) == sorted(wanted), "each execution is in one place"
    assert set(trained) <= set(closed) | set(open_ids), "what is trained is in a batch"
    older = {(fact.execution_id, fact.attempt) for fact in script if isinstance(fact, r.ExecutionEnded)} - set(
        newest.items()
    )
    again = [drop.sample_id for drop in drops if drop.reason == "duplicate"]
    assert len(again) == len(set(again)) and set(again) <= {ids.sample_id(*one) for one in older}
    tokens = [(row.sample_id, row.part) for micro in world.queue for row in micro.rows]
    assert len(set(tokens)) == len(
        {(micro.micro_id, row.sample_id, row.part) for micro in world.queue for row in micro.rows}
    )


@settings(max_examples=100, deadline=None)
@given(histories(), SETTINGS, st.integers(-1, 60), st.booleans(), FIRST)
def test_every_execution_is_trained_dropped_or_waits_exactly_once(script, settings_, lives, is_streaming, first):
    """Retries, broken records, repeats of any fact, and a kill after any message of ours (−1: none)."""
    world = Counted(script, settings_, lives, is_streaming=is_streaming, first=first).run()
    check_whole(world, settings_)
    conserved(world, script)


@settings(max_examples=60, deadline=None)
@given(histories(), SETTINGS, st.data())
def test_a_run_that_goes_on_from_any_prefix_of_its_facts_says_the_same(script, settings_, data):
    """A kill between any two facts of the stream, of whomever: the rest of the others' facts in the same order gives the rest of ours."""
    whole = Counted(script, settings_).run().live
    place = data.draw(st.integers(0, len(whole.stream)))
    past, rest = whole.stream[:place], whole.stream[place:]
    again = Live(settings_, past=past).see(*(fact for fact in rest if not isinstance(fact, SAID)))
    found = [fact for fact in again.stream if isinstance(fact, SAID)]
    wanted = [fact for fact in whole.stream if isinstance(fact, SAID)]
    assert sorted(map(str, map(timeless, found))) == sorted(map(str, map(timeless, wanted)))
    rows = {micro.micro_id: micro.rows for micro in whole.queue}
    assert all(rows[micro.micro_id] == micro.rows for micro in again.queue)
    assert not again.processor.intents and opened(0) in whole.stream
