"""The run as a fold of its facts, and the summary made of it."""

import pytest

from gyre import records as r
from gyre.cli.training.progress import Progress
from gyre.cli.training.summary import summarize
from gyre.config.load import parse


def folded(*facts) -> Progress:
    progress = Progress()
    for fact in facts:
        progress.apply(fact)
    return progress


def change(cell, number, target, start_s, step_s=1.0):
    """All phases of one role change, `step_s` apart."""
    return [
        r.RoleChanged(cell=cell, change=number, target=target, phase=phase, at_s=start_s + i * step_s, duration_s=step_s * (i > 0))
        for i, phase in enumerate(r.CELL_PHASES[target])
    ]  # fmt: skip


def dispatched(group, members, purpose="train"):
    return r.GroupDispatched(
        group_id=group, execution_ids=[f"{group}-e{i}" for i in range(members)], task_type="t", tenant="d", purpose=purpose,
        tier="all", policy_version=0, queue_wait_s=0, promotions=0, at_s=1.0,
    )  # fmt: skip


def ended(execution, attempt=1, purpose="train", ending="completed", outcome=1.0, valid=True, turns=3, tokens=30):
    evaluation = None if outcome is None else r.Evaluation(outcome=outcome, valid=valid)
    return r.ExecutionEnded(
        execution_id=execution, group_id=execution.rpartition("-e")[0], attempt=attempt, task_type="t", tenant="d",
        purpose=purpose, ending=ending, reason="submitted", evaluation=evaluation, turns=turns, tokens_sampled=tokens, at_s=2.0,
    )  # fmt: skip


def drop(sample, reason):
    execution, _, attempt = sample.rpartition("-a")
    return r.SampleDropped(
        sample_id=sample, execution_id=execution, group_id=execution.rpartition("-e")[0], attempt=int(attempt), task_type="t",
        tenant="d", reason=reason, at_s=3.0,
    )  # fmt: skip


def updated(step, *samples):
    return r.StepUpdated(
        step=step,
        version=step + 1,
        burst=step,
        sample_ids=list(samples),
        micro_cells={},
        metrics={},
        opened_at_s=3,
        at_s=4,
    )


def closed(step, mean, groups):
    return r.BatchClosed(
        step=step, cause="turns", turns=10, turns_target=10, groups=[f"g{i:06d}" for i in range(groups)], sample_ids=[],
        micro_ids=[], divisor=1, truncated_share=0, failed_share={}, no_gradient=False, staleness_mean=mean, staleness_max=2, at_s=4,
    )  # fmt: skip


def test_the_start_of_a_run_is_no_role_change_and_each_phase_has_its_median():
    """A1, A6: two changes after change 0; into training each of the three phases took 1 s and 3 s, median 2, and 6 s in all."""
    progress = folded(
        *change("cell-0", 0, "rollout", 0),
        *change("cell-0", 1, "training", 10, 1.0),
        *change("cell-1", 1, "training", 20, 3.0),
    )
    assert progress.role_changes == 2
    assert progress.role_change_s == {
        "into_training.drained": 2.0, "into_training.total": 6.0, "into_training.training": 2.0, "into_training.unloaded": 2.0,
    }  # fmt: skip
    assert not progress.all_serving(2)
    assert progress.lanes["cell-0"].at(11.5) == "changing" and progress.lanes["cell-0"].at(13.5) == "training"


def test_dispatched_is_trained_plus_dropped_plus_in_flight():
    """C14 balance: 4 dispatched; e0 trained, e1 dropped, e2's older attempt dropped as a duplicate and the newer trained, e3 runs."""
    progress = folded(
        dispatched("g000001", 4), dispatched("g000002", 1, "evaluation"), drop("g000001-e1-a1", "age"),
        drop("g000001-e2-a1", "duplicate"), updated(0, "g000001-e0-a1", "g000001-e2-a2"),
    )  # fmt: skip
    assert len(progress.dispatched) == 4 and progress.drops == {"age": 1}
    assert len(progress.trained_executions) == 2 and progress.in_flight == 1


def test_mean_staleness_weighs_batches_by_their_groups():
    """A5: (0·6 + 1·2) / 8 = .25, not the batches' own mean .5."""
    assert folded(closed(0, 0.0, 6), closed(1, 1.0, 2)).staleness_mean == pytest.approx(0.25)
    assert folded().staleness_mean is None


def test_a_failed_evaluation_counts_against_the_run_and_is_shown_apart():
    """Of four held-out tasks one succeeds: 25 %; an invalid score and a failed ending are two that failed."""
    progress = folded(
        ended("g000001-e0", purpose="evaluation"), ended("g000002-e0", purpose="evaluation", outcome=0.3),
        ended("g000003-e0", purpose="evaluation", valid=False), ended("g000004-e0", purpose="evaluation", ending="failed", outcome=None),
        ended("g000005-e0"),
    )  # fmt: skip
    verdicts = progress.evaluated({f"g00000{i}" for i in range(1, 6)})
    config = parse({"model": {"path": "m"}, "scheduler": {"extra_depth_steps": 1.0, "steps_per_publish": 2}}, "test")
    summary = summarize(config, "f", progress, verdicts, [], {"c": True}, {}, {"total": 1.234})
    assert summary["success_before"] == 0.25 and summary["evaluations"]["before"] == {"tasks": 4, "failed": 2}
    assert summary["success_after"] is None and summary["staleness_law"] == 1.5 and summary["wall_s"] == {"total": 1.23}
    assert (summary["turns"], summary["tokens_sampled"]) == (15, 150)


def test_a_newer_attempt_replaces_an_older_verdict_and_a_fact_twice_is_a_fact_once():
    first, second = ended("g000001-e0", 1, "evaluation", outcome=0.0), ended("g000001-e0", 2, "evaluation")
    progress = folded(second, first, first)
    assert [v.success for v in progress.evaluated({"g000001"})] == [True]
    assert progress.has_ended({"g000001"}) == 1 and progress.turns == 6


def test_the_summary_has_every_promised_field():
    config = parse({"model": {"path": "m"}}, "test")
    promised = ("success_before", "success_after", "steps", "role_changes", "role_change_s", "mid_batch_joins", "staleness_mean",
                "staleness_law", "dispatched", "trained", "dropped", "in_flight", "turns", "tokens_sampled", "audit", "wall_s")  # fmt: skip
    assert set(promised) <= set(summarize(config, "f", Progress(), [], [], {}, {}, {}))


def test_the_queue_follows_what_batches_really_consume():
    """A4: 8 groups planned, batches took 6 and 11: the next boundary may ask for 11 a step; 20 batches ago does not matter."""
    assert folded(closed(0, 0.0, 6), closed(1, 0.0, 11)).groups_per_step(8) == 11
    assert folded(closed(0, 0.0, 40), *(closed(i, 0.0, 6) for i in range(1, 20))).groups_per_step(8) == 8
