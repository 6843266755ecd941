"""The books of the small run, worked out by hand from tests/unit/ledger/ledger_history.py."""

import msgspec
import pytest

from gyre import records as r
from gyre.errors import NotFound
from services.ledger.queries import books, drops, explain, queues
from tests.unit.ledger.ledger_history import RUN, changed, config, dispatched, history, kept_books, store


@pytest.fixture
def answer(whole):
    with whole.read() as connection:
        return books(connection, RUN, config())


def test_three_books_add_up_by_purpose(answer):
    """C6: 7 training attempts with 2 turns of 3 tokens, one evaluation; 6 s for each of the 8 that started and ended."""
    total = answer["books"]
    assert (total["turns"], total["tokens_sampled"], total["occupancy_s"], total["external_calls"]) == (
        16,
        48,
        48.0,
        16,
    )
    assert total["by_purpose"]["evaluation"]["turns"] == 2
    assert total["quota_left"] is None
    assert answer["fingerprint"] == "f00d"


def test_each_dispatched_execution_is_in_one_place(answer):
    """C6: five training groups of two; the evaluation and the older attempt (duplicate) stay outside."""
    counts = answer["executions"]
    assert (counts["dispatched"], counts["trained"], counts["dropped"], counts["in_flight"]) == (10, 4, 4, 2)
    assert counts["dropped_by_reason"] == {"age": 1, "environment_failed": 1, "no_gradient": 2}
    assert counts["evaluation"] == {"dispatched": 1, "ended": 1}


def test_staleness_counts_what_batches_used_up_trained_or_not(answer):
    """A5: step 0 at v_d 0 → 0; step 1 at 0 → 1; step 2 (no gradient, still used up) at 1 → 1; two executions each: mean 2/3."""
    found = answer["staleness"]
    assert [(row["step"], row["mean"], row["executions"]) for row in found["by_step"]] == [
        (0, 0, 2),
        (1, 1, 2),
        (2, 1, 2),
    ]
    assert found["mean"] == pytest.approx(2 / 3)
    assert found["max"] == 1
    assert found["law"] == 0.5


def test_phases_of_the_median_role_change_sum_to_the_whole(answer):
    """A6: requested at 10, drained at 12, unloaded at 13, training at 18: eight seconds."""
    found = answer["role_changes"]
    assert (found["count"], found["mid_batch_joins"]) == (1, 1)
    assert found["training"]["phases_median_s"] == {"drained": 2.0, "unloaded": 1.0, "training": 5.0}
    assert sum(found["training"]["median_change"]["phases"].values()) == found["training"]["total_median_s"] == 8.0
    assert found["rollout"]["count"] == 0


def test_evaluation_and_reward_curves(answer):
    """D1: one evaluation at version 1, a success; step 0 has outcomes 1 and 0, step 2 has 1 and 1."""
    assert [(row["policy_version"], row["success"]) for row in answer["evaluation"]] == [(1, 1.0)]
    assert [(row["step"], row["reward"], row["success"]) for row in answer["reward_by_step"]] == [
        (0, 0.5, 0.5),
        (1, 0.5, 0.5),
        (2, 1.0, 1.0),
    ]
    assert answer["alarms"] == {"starvation": 1}


def test_drops_say_what_was_lost_and_the_line(whole):
    """C9: five drops of two turns; kept samples have two turns as well, so dropping is not biased by length."""
    with whole.read() as connection:
        found = drops(connection, RUN, config())
    assert {row["reason"]: row["samples"] for row in found["reasons"]} == {
        "age": 1, "duplicate": 1, "environment_failed": 1, "no_gradient": 2,
    }  # fmt: skip
    assert found["total"] == {"samples": 5, "turns": 10, "tokens": 30, "occupancy_s": 30.0}
    assert found["length"] == {"dropped_turns_mean": 2.0, "kept_turns_mean": 2.0, "ratio": 1.0}
    assert found["line"]["age_steps_max"] == 8


def test_what_had_not_arrived_is_counted_by_policy(whole):
    """C5: one batch waited 60 s for two executions and told them to finish; none of this history's endings is a truncation."""
    with whole.read() as connection:
        found = drops(connection, RUN, config())["missing"]
    assert found["by_policy"] == [{"policy": "truncate", "batches": 1, "executions": 2, "waited_s_mean": 60.0}]
    assert (found["truncated"], found["dropped"]) == (0, 0)


def test_replays_of_the_elite_store_are_counted_apart(tmp_path):
    """D9: batch 7 trains a sample of step 0 again: the run's executions are what they were, dispatched = trained + dropped + in flight."""
    database = kept_books(tmp_path / "ledger.db", history())
    with database.read() as connection:
        before = books(connection, RUN, config())["executions"]
    closed = next(fact for fact in history() if isinstance(fact, r.BatchClosed))
    again = msgspec.structs.replace(
        closed, step=7, groups=[], sample_ids=[], micro_ids=["s000007-elite-0-m0"], elites=["g000000-e0-a1"]
    )
    store(database, [again])
    with database.read() as connection:
        found = books(connection, RUN, config())
    assert found["executions"] == before and found["elite"] == {"replays": 1, "samples": 1, "steps": 1}
    assert before["dispatched"] == before["trained"] + before["dropped"] + before["in_flight"]
    database.close()


def test_records_that_were_set_aside_are_shown_with_reason_and_example(whole):
    """B1: two calls of one execution, three output tokens each; the page of their sample marks them."""
    with whole.read() as connection:
        found = drops(connection, RUN, config())["set_aside"]
        page = explain(connection, RUN, "g000001-e1-a2")
    assert (found["calls"], found["tokens"]) == (2, 6)
    assert [(row["reason"], row["calls"], row["executions"]) for row in found["reasons"]] == [
        ("orphan", 1, 1),
        ("version_unknown", 1, 1),
    ]
    assert all(row["meaning"] for row in found["reasons"])
    assert found["examples"][1] == {
        "reason": "version_unknown", "call_id": "g000001-e1-a2-c0", "detail": "found in call 0",
    }  # fmt: skip
    assert [call["set_aside"] for call in page["call_list"]] == ["version_unknown", "orphan"]


def test_what_evaluators_said_is_on_the_page_of_its_sample_and_a_failed_one_is_no_zero(whole):
    """B4, D4: value NULL with the reason, and what was looked at."""
    with whole.read() as connection:
        page = explain(connection, RUN, "g000001-e1-a2")
        others = explain(connection, RUN, "g000001-e0-a1")
    assert [(one["evaluator"], one["value"], one["valid"], one["partial"]) for one in page["scores"]] == [
        ("slow", None, False, True),
        ("taste", 0.75, True, True),
    ]
    assert page["scores"][0]["detail"] == "timed out"
    assert (page["scores"][1]["evidence"], page["scores"][1]["looked_at"], page["scores"][1]["tries"]) == (
        {"lines": 3},
        ["diff"],
        2,
    )
    assert others["scores"] == []


def test_evaluators_that_failed_are_counted_with_their_last_words(whole):
    """B4: each was asked about one execution that had been cut short; the slow one could not be had."""
    with whole.read() as connection:
        slow, taste = drops(connection, RUN, config())["evaluators"]
    assert (slow["asked"], slow["failed"], slow["partial"], slow["value_mean"]) == (1, 1, 1, None)
    assert slow["last_failure"] == {"sample_id": "g000001-e1-a2", "detail": "timed out"}
    assert (taste["failed"], taste["value_mean"], taste["took_s_mean"], taste["last_failure"]) == (0, 0.75, 1.5, None)


def test_one_page_explains_a_trained_sample(whole):
    """C11, C7: the reproducibility four, versions 0, 0, 1 of each call's tokens, its second attempt, its step and staleness."""
    with whole.read() as connection:
        page = explain(connection, RUN, "g000001-e1-a2")
    assert page["evidence"] == {
        "image_digest": "sha256:11", "seed": 7, "tool_versions": {"python": "3.11"}, "dependency_snapshot": "none",
    }  # fmt: skip
    assert page["versions"] == {
        "min": 0,
        "mean": pytest.approx(1 / 3),
        "max": 1,
        "dispatched": 0,
        "fingerprint": "f00d",
    }
    assert (page["state"], page["attempt"], [row["attempt"] for row in page["attempts"]]) == ("trained", 2, [1, 2])
    assert (page["training"]["step"], page["training"]["staleness_steps"]) == (1, 1)
    assert page["training"]["metrics"] == {"loss_share": 0.5}
    assert page["queue"] == {"tier": "all", "wait_s": 1.0, "promotions": 1}
    assert page["rewards"]["truncated"] is True
    assert page["credit"] == {
        "segments": 2, "kappa": 0.75, "segment_starts": [0, 1], "segment_advantages": [0.5, -0.25],
        "milestone_turns": {"m": 1},
    }  # fmt: skip
    assert page["calls"]["count"] == 2
    assert page["task"]["task_id"] == "task-1"
    assert [stage["stage"] for stage in page["timeline"]][:4] == ["queued", "dispatched", "starting", "running"]


def test_a_dropped_sample_says_why(whole):
    """C9"""
    with whole.read() as connection:
        page = explain(connection, RUN, "g000003-e1-a1")
    assert page["state"] == "dropped"
    assert (page["drop"]["reason"], page["drop"]["age_steps"], page["training"]) == ("age", 9, None)


def test_an_unknown_sample_names_its_neighbours(whole):
    """C11"""
    with (
        whole.read() as connection,
        pytest.raises(NotFound, match="near it: g000001-e0-a1, g000001-e1-a1, g000001-e1-a2"),
    ):
        explain(connection, RUN, "g000001-e1-a9")
    with whole.read() as connection, pytest.raises(NotFound, match="near it: g000000-e0-a1"):
        explain(connection, RUN, "nonsense")


def test_queue_curves_are_by_tier_and_add_up(tmp_path):
    """C1: five train groups of the history, sent at one moment after one second with one promotion each; a sixth, later, in another tier."""
    facts = history()
    late = changed(
        dispatched(9, 2), r.GroupDispatched, lambda fact: True, tier="long", queue_wait_s=9.0, promotions=0, at_s=62.0
    )
    database = kept_books(tmp_path / "ledger.db", facts + late)
    with database.read() as connection:
        found = queues(connection, RUN)
    database.close()
    assert found["tiers"]["all"] == {
        "groups": 5, "wait_s_mean": 1.0, "wait_s_max": 1.0, "promotions": 5, "promoted_groups": 5,
    }  # fmt: skip
    assert found["stretch_s"] == 1.0
    assert found["curves"]["all"] == [
        {"from_s": 2.0, "groups": 5, "wait_s_mean": 1.0, "wait_s_max": 1.0, "promotions": 5}
    ]
    assert [(point["from_s"], point["wait_s_mean"]) for point in found["curves"]["long"]] == [(61.0, 9.0)]


def test_a_samples_page_shows_what_was_commanded(whole):
    """C2: g000004-e0 was suspended and resumed, each carried out a second later."""
    with whole.read() as connection:
        commands = explain(connection, RUN, "g000004-e0-a1")["commands"]
    said = [(one["command"], one["commanded_at_s"], one["carried_out_at_s"], one["attempt"]) for one in commands]
    assert said == [("suspend", 34.0, 35.0, 1), ("resume", 35.0, 36.0, 1)]
