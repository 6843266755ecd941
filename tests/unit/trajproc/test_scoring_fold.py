"""Groups wait for their evaluators, and what they said decides from the stream alone (B4, D4)."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre import records as r
from gyre.config import EvaluatorConfig
from services.trajproc.core.scoring import Question
from tests.unit.trajproc.builders import Live, config, dispatched, ended, execution, leased, opened, started, submitted
from tests.unit.trajproc.test_trajproc_restart import SETTINGS, Mortal, World, check_whole, timeless

G = "g000000"
TASTE = EvaluatorConfig(name="taste", kind="learned", weight=0.5, url="http://127.0.0.1:1/x")
SAFE = EvaluatorConfig(name="safe", kind="guard", url="http://127.0.0.1:1/x")
SPARE = EvaluatorConfig(name="spare", kind="dense", weight=0.5, required=False, url="http://127.0.0.1:1/x")


def scored(
    member: int, evaluator: str, value: float | None, *, group: str = G, attempt: int = 1, at_s: float = 11.0
) -> r.RewardScored:
    execution_id = ids.execution_id(group, member)
    return r.RewardScored(
        sample_id=ids.sample_id(execution_id, attempt), execution_id=execution_id, group_id=group, attempt=attempt,
        task_type="repair", evaluator=evaluator, kind="learned", value=value, valid=value is not None, partial=False, tries=1,
        took_s=0.1, at_s=at_s, detail="" if value is not None else "no answer within 30 s",
    )  # fmt: skip


def judged(*evaluators: EvaluatorConfig):
    class Judged(Live):
        pass

    Judged.evaluators = evaluators
    return Judged


def pair(first: float = 0.0, second: float = 0.0) -> list:
    return [started(), submitted(G), dispatched(G), opened(0), *execution(G, 0, first), *execution(G, 1, second)]


def rewards(live: Live) -> dict[str, float]:
    return {fact.sample_id: fact.reward for fact in live.all(r.SampleReady)}


def test_a_group_is_judged_when_its_evaluators_have_had_their_say_and_its_batch_waits_for_it():
    """D4: both failed, the model likes the first better: .5·.8 and .5·.2, advantages ±.15. Nothing else is outstanding, and still the batch is
    not exhausted while the group is being evaluated."""
    live = judged(TASTE)().see(*pair())
    live.tick(1000.0)
    assert live.all(r.SampleReady) == [] and live.all(r.BatchClosed) == []
    assert live.processor.questions[G] == [Question(G, f"{G}-e0", 1, "taste"), Question(G, f"{G}-e1", 1, "taste")]
    live.see(scored(0, "taste", 0.8))
    assert [one.execution_id for one in live.processor.questions[G]] == [f"{G}-e1"] and not live.all(r.SampleReady)
    live.see(scored(1, "taste", 0.2))
    assert rewards(live) == pytest.approx({f"{G}-e0-a1": 0.4, f"{G}-e1-a1": 0.1})
    assert [fact.advantage for fact in live.all(r.SampleReady)] == pytest.approx([0.15, -0.15])
    assert live.batch().groups == [G] and live.processor.questions == {}


def test_an_execution_is_asked_about_as_soon_as_it_is_whole():
    """The first of a group need not wait for the slowest: its ending counts one call, which is here; the other has not ended."""
    live = judged(TASTE)().see(started(), dispatched(G), *execution(G, 0), leased(G, 1))
    assert [one.execution_id for one in live.processor.questions[G]] == [f"{G}-e0"]


def test_a_required_failure_leaves_training_with_its_reason_and_is_in_no_baseline():
    """B4: of outcomes 1, 0 and one whose evaluation failed the baseline is that of the first two: ±.5, and never a zero."""
    facts = [
        started(),
        dispatched(G, 3),
        opened(0),
        *execution(G, 0, 1.0),
        *execution(G, 1, 0.0),
        *execution(G, 2, 1.0),
    ]
    live = judged(SAFE)().see(*facts, scored(0, "safe", 1.0), scored(1, "safe", 1.0), scored(2, "safe", None))
    (drop,) = live.all(r.SampleDropped)
    assert (drop.sample_id, drop.reason) == (f"{G}-e2-a1", "evaluation_failed")
    assert "evaluator safe: no answer within 30 s" in drop.detail
    assert [fact.advantage for fact in live.all(r.SampleReady)] == [0.5, -0.5]
    assert live.processor.evaluations_failed == {"safe": 1}


def test_an_optional_component_that_one_member_lacks_is_left_out_for_its_group():
    """B4: the first's .9 would put it above the second, which nobody could judge: equal outcomes stay equal, no gradient."""
    live = judged(SPARE)().see(*pair(), scored(0, "spare", 0.9), scored(1, "spare", None))
    assert rewards(live) == {f"{G}-e0-a1": 0.0, f"{G}-e1-a1": 0.0}
    assert set(live.drops().values()) == {"no_gradient"}
    assert all("dense.spare" not in fact.rewards for fact in live.all(r.SampleReady))


def test_a_firing_guard_takes_reward_success_and_milestones_pay():
    """D4: of two verified successes the one that broke the guard is paid 0: ±.5; it counts as failed for the quota (C10)."""
    live = judged(SAFE)().see(*pair(1.0, 1.0), scored(0, "safe", 0.0), scored(1, "safe", 1.0))
    first, second = live.all(r.SampleReady)
    assert (first.reward, first.success, first.rewards) == (0.0, False, {"outcome": 0.0, "guard.safe": 0.0})
    assert (second.reward, second.success) == (1.0, True)


def test_nobody_is_asked_about_errors_and_placeholders():
    """B4, NeMo-RL#3470: a failed environment has its own drop, a placeholder its marked zero; the third is asked about."""
    facts = [started(), dispatched(G, 3), opened(0), ended(G, 0, None, ending="failed", calls=0)]
    live = judged(TASTE)().see(*facts, *execution(G, 1, 0.0, placeholder=True), *execution(G, 2, 0.0))
    assert [one.execution_id for one in live.processor.questions[G]] == [f"{G}-e2"]
    live.see(scored(2, "taste", 1.0))
    assert rewards(live) == {f"{G}-e1-a1": 0.0, f"{G}-e2-a1": 0.5}


def test_words_about_an_older_attempt_and_a_second_word_change_nothing():
    """A group that is sent again starts over: attempt 1's score is gone, attempt 2 is asked about; the first word counts."""
    live = judged(TASTE)().see(*pair(), scored(0, "taste", 0.9), dispatched(G, base=1))
    assert live.processor.questions == {}
    live.see(*execution(G, 0, 0.0, attempt=2), *execution(G, 1, 0.0, attempt=2), scored(0, "taste", 0.9))
    assert len(live.processor.questions[G]) == 2
    live.see(scored(0, "taste", 0.2, attempt=2), scored(0, "taste", 1.0, attempt=2), scored(1, "taste", 0.4, attempt=2))
    assert rewards(live) == pytest.approx({f"{G}-e0-a2": 0.1, f"{G}-e1-a2": 0.2})


def test_an_evaluator_that_is_down_is_alarmed_once_until_it_judges_again():
    """B4: eight executions in a row; the next eight say nothing more; after a valid one the count begins anew."""
    live = judged(SAFE)(config(turns_per_step=10_000)).see(started(), opened(0))
    values = [None] * 16 + [1.0] + [None] * 8 + [1.0]
    for index in range(0, len(values), 2):
        name = ids.group_id(index)
        live.see(dispatched(name), *execution(name, 0), *execution(name, 1))
        words = [
            scored(member, "safe", values[index + member], group=name, at_s=11.0 + index + member) for member in (0, 1)
        ]
        live.see(*words)
    alarms = [alarm for alarm in live.all(r.AlarmRaised) if alarm.kind == "evaluator_failing"]
    assert [alarm.at_s for alarm in alarms] == [18.0, 35.0] and "no answer within 30 s" in alarms[0].message
    assert judged(SAFE)(config(turns_per_step=10_000), past=live.stream).said == []


def test_gaming_is_alarmed_once_under_a_name_that_a_restart_confirms():
    """D4: executions 40 and later repeat their tool call and please the model, no outcome is verified; window 40, halves of 20."""
    live = judged(TASTE)(config(gaming_window=40, turns_per_step=10_000))
    live.see(started(), opened(0))
    for index in range(40):
        name, games = ids.group_id(index), index >= 20
        live.see(submitted(name), dispatched(name))
        for member in (0, 1):
            facts = execution(name, member, 0.0, turns=2)
            payloads = [{"a": "x"}, {"b": "x" if games else "y"}]
            for place, payload in zip((1, 2), payloads, strict=True):
                facts[place] = msgspec.structs.replace(facts[place], tool_payloads=payload)
            live.see(*facts, scored(member, "taste", 0.6 if games else 0.2, group=name))
    alarms = [alarm for alarm in live.all(r.AlarmRaised) if alarm.kind == "reward_gaming"]
    assert len(alarms) == 1 and alarms[0].values["repeated_now"] > alarms[0].values["repeated_before"]
    again = judged(TASTE)(config(gaming_window=40, turns_per_step=10_000), past=live.stream)
    assert again.said == [] and "repair" in again.processor.gaming.alarmed


class MortalJudged(Mortal):
    evaluators = (TASTE, SPARE)


class JudgedWorld(World):
    mortal = MortalJudged


@st.composite
def scored_scripts(draw):
    """Groups of two whose executions and evaluators' words are interleaved in any order in which each word follows its ending."""
    number = draw(st.integers(1, 4))
    facts = [started(), *(submitted(ids.group_id(index)) for index in range(number))]
    waiting: list[list] = []
    for index in range(number):
        facts.append(dispatched(ids.group_id(index), 2, index))
        for member in (0, 1):
            story = execution(ids.group_id(index), member, draw(st.sampled_from([0.0, 1.0])), version=index)
            words = [
                scored(member, name, draw(st.sampled_from([None, 0.0, 0.5, 1.0])), group=ids.group_id(index))
                for name in draw(st.permutations(("taste", "spare")))
            ]
            waiting.append([story, *([word] for word in words)])
    while waiting:
        story = waiting[draw(st.integers(0, len(waiting) - 1))]
        # clocks give no two words the same microsecond, of which an alarm's name is made
        facts += [msgspec.structs.replace(fact, at_s=11.0 + len(facts)) for fact in story.pop(0)]
        waiting = [rest for rest in waiting if rest]
    return facts


@settings(max_examples=40, deadline=None)
@given(scored_scripts(), SETTINGS, st.integers(1, 40), st.booleans())
def test_a_kill_at_any_message_changes_nothing_with_evaluators_either(script, settings_, lives, is_streaming):
    """State is a fold: the same facts in the same order, and questions are open of exactly what is not on record."""
    whole, broken = [JudgedWorld(script, settings_, dies, is_streaming=is_streaming).run() for dies in (-1, lives)]
    check_whole(broken, settings_)
    assert list(map(timeless, broken.facts)) == list(map(timeless, whole.facts))
    assert broken.live.processor.questions == whole.live.processor.questions == {}


@settings(max_examples=40, deadline=None)
@given(scored_scripts(), SETTINGS, st.integers(1, 30), st.integers(0, 8), st.frozensets(st.integers(0, 30), max_size=3))
def test_answers_that_come_while_the_processor_is_down_leave_no_orphan(script, settings_, lives, ahead, ticks):
    """B4, C5: words on the stream that no live processor had folded, and batches that time closed, change nothing that was sent."""
    check_whole(JudgedWorld(script, settings_, lives, ahead, ticks).run(), settings_)


def weighed(weight: float, evaluator: str = "taste", at_s: float = 11.5) -> r.RewardWeighed:
    return r.RewardWeighed(
        evaluator=evaluator, weight=weight, share=weight / 0.5, agreement=0.6, low=0.55, pairs=90, at_s=at_s
    )


def test_a_weight_that_agreement_left_counts_for_groups_judged_after_it():
    """D8: the first group has .5·.8 and .5·.2; the weight falls to .1 while the second is being judged: both its members have it."""
    other = "g000001"
    live = judged(TASTE)().see(*pair(), scored(0, "taste", 0.8), scored(1, "taste", 0.2))
    live.see(submitted(other), dispatched(other), *execution(other, 0, 0.0), *execution(other, 1, 0.0))
    live.see(
        scored(0, "taste", 0.8, group=other), weighed(0.1), weighed(0.4, "nobody"), scored(1, "taste", 0.2, group=other)
    )
    assert rewards(live) == pytest.approx(
        {f"{G}-e0-a1": 0.4, f"{G}-e1-a1": 0.1, f"{other}-e0-a1": 0.08, f"{other}-e1-a1": 0.02}
    )


def test_only_what_was_learned_is_weighed():
    """D8: a guard has no weight, and rules are what is verified."""
    live = judged(SAFE, SPARE)().see(*pair(1.0, 0.0), weighed(0.0, "safe"), weighed(0.0, "spare"))
    assert [one.weight for one in live.processor.evaluators] == [SAFE.weight, SPARE.weight]
