"""Each of the six illnesses is found where it is planted, alone, and with nobody else ill (D13)."""

import msgspec
import pytest

from gyre import records as r
from gyre.ids import execution_id, group_id, sample_id
from services.ledger.judging import import_judgements
from services.ledger.queries.doctor import Room, doctor
from tests.unit.ledger.ledger_history import (
    RUN,
    call,
    config,
    dispatched,
    dropped,
    ended,
    history,
    leased,
    ready,
    scored,
    started,
    step,
)

PLENTY = Room(database_bytes=10**6, free_bytes=10**12, now_s=10_000.0)


def judged(database, room=PLENTY, **trajproc):
    with database.read() as connection:
        return doctor(connection, RUN, config(**trajproc), room)


def of(answer, illness):
    return next(one for one in answer["illnesses"] if one["illness"] == illness)


def test_a_small_sound_run_is_not_ill_and_what_cannot_be_told_is_said(whole):
    """Four illnesses need more than twelve executions."""
    found = judged(whole)
    assert found["ill"] == []
    assert {one["illness"]: one["state"] for one in found["illnesses"]} == {
        "reward_drift": "unknown", "exploration_noise": "unknown", "process_gaming": "unknown", "value_divergence": "unknown",
        "storage_overflow": "well", "sampling_lag": "well",
    }  # fmt: skip
    assert all(one["remedy"] and one["figure"] for one in found["illnesses"])


def numbered(
    count: int, learned=lambda n: 0.2, repeated=lambda n: 0.05, outcome=lambda n: float(n % 2)
) -> list[r.Fact]:
    """`count` trained executions, one a group, each its own step; what a model paid and how much was repeated by its number."""
    facts: list[r.Fact] = []
    for n in range(count):
        sample = sample_id(execution_id(group_id(n), 0), 1)
        facts += dispatched(n, n)
        facts += [leased(n, 0), started(n, 0), ended(n, 0, turns=0, outcome=outcome(n), version=n)]
        told = msgspec.structs.replace(scored(n, 0, "taste", learned(n)), at_s=float(n))
        paid = {"outcome": outcome(n), "learned.taste": learned(n)}
        made = msgspec.structs.replace(ready(n, 0, version=n), rewards=paid, repeated_share=repeated(n), at_s=float(n))
        facts += [told, made, r.BatchClosed(
            step=n, cause="turns", turns=4, turns_target=4, groups=[group_id(n)], sample_ids=[sample], micro_ids=["m"], divisor=1,
            truncated_share=0.0, failed_share={}, no_gradient=False, staleness_mean=0.0, staleness_max=0, at_s=float(n),
        )]  # fmt: skip
    return facts


def later(n: int, before: float, after: float) -> float:
    """The first half of 128 executions, then the other; a little uneven, as life is."""
    return (before if n < 64 else after) + 0.01 * (n % 3)


def test_a_model_whose_score_rises_while_the_outcome_stands_still_has_drifted(books_of):
    """D8: .2 → .5 over 64 executions each, of which every second succeeds throughout; in a run where outcomes rise as well it has not."""
    rising = {"learned": lambda n: later(n, 0.2, 0.5)}
    found = judged(books_of(numbered(128, **rising)))
    assert found["ill"] == ["reward_drift"]
    assert "taste: score rose by 0.3" in of(found, "reward_drift")["figure"]
    better = judged(books_of(numbered(128, **rising, outcome=lambda n: float(n >= 64 or n % 2))))
    assert of(better, "reward_drift")["state"] == "well"


def judgements(path, wrong: bool, count: int = 24):
    """People order `count` samples by number; so does the model, or the other way round."""
    lines = ["sample_id,judge,kind,score"]
    for n in range(count):
        name = sample_id(execution_id(group_id(n), 0), 1)
        lines += [f"{name},ann,person,{n}", f"{name},taste,model,{-n if wrong else n}"]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("wrong", [True, False])
def test_a_model_that_people_do_not_agree_with_has_drifted(books_of, tmp_path, wrong):
    """D8: 24 samples, 276 pairs, all against it or all for it."""
    database = books_of(numbered(24))
    assert import_judgements(database, RUN, judgements(tmp_path / "j.csv", wrong), 1.0)["stored"] == 48
    found = of(judged(database), "reward_drift")
    assert found["state"] == ("ill" if wrong else "well")
    assert f"agrees with people in {0 if wrong else 100}% of 276 pairs" in found["figure"]


def purposes(count: int, evaluation_temperature: float) -> list[r.Fact]:
    """As many training executions, of which one in four succeeds at temperature 1, as evaluations, of which all do."""
    facts: list[r.Fact] = []
    for n in range(count):
        for index, purpose, outcome, temperature in (
            (n, "train", float(n % 4 == 0), 1.0), (count + n, "evaluation", 1.0, evaluation_temperature),
        ):  # fmt: skip
            submitted, sent = dispatched(index, 3, purpose)
            task = msgspec.structs.replace(submitted.task, temperature=temperature)
            facts += [msgspec.structs.replace(submitted, task=task), sent]
            facts.append(ended(index, 0, turns=0, outcome=outcome, version=3, purpose=purpose))
    return facts


@pytest.mark.parametrize(("temperature", "state"), [(0.2, "ill"), (1.0, "well")])
def test_weights_that_do_far_better_when_sampled_soberly_are_explored_too_noisily(books_of, temperature, state):
    """D7: a quarter against all of 40, at temperatures 1 and .2; at the same temperature the noise is not to blame."""
    found = judged(books_of(purposes(40, temperature)))
    assert of(found, "exploration_noise")["state"] == state
    assert found["ill"] == (["exploration_noise"] if state == "ill" else [])


def test_pay_that_rises_with_repeats_while_what_is_verified_stands_still_is_gamed(books_of):
    """D4: from .2 to .35 and from 5 % to 60 % repeats over 64 executions each, all successes. Not without repeats or with better outcomes."""
    gamed = {
        "learned": lambda n: later(n, 0.2, 0.35),
        "repeated": lambda n: later(n, 0.05, 0.6),
        "outcome": lambda n: 1.0,
    }
    found = of(judged(books_of(numbered(128, **gamed))), "process_gaming")
    assert found["state"] == "ill"
    assert "repeats 6% → 61%" in found["figure"] and "milestones_gated" in found["remedy"]
    for honest in ({**gamed, "repeated": lambda n: 0.05}, {**gamed, "outcome": lambda n: float(n >= 64)}):
        assert of(judged(books_of(numbered(128, **honest))), "process_gaming")["state"] == "well"


def steps(count: int, advantage=lambda n: 0.5, grad_norm=lambda n: 1.0, loss=lambda n: 0.1) -> list[r.Fact]:
    facts: list[r.Fact] = []
    for n in range(count):
        facts += dispatched(n, n)
        facts.append(msgspec.structs.replace(ready(n, 0, version=n), advantage=advantage(n) * (1 + 0.1 * (n % 3))))
        for fact in step(n, [(n, 0, 1)]):
            metrics = {"loss": loss(n), "grad_norm": grad_norm(n) * (1 + 0.1 * (n % 3))}
            facts.append(msgspec.structs.replace(fact, metrics=metrics) if isinstance(fact, r.StepUpdated) else fact)
    return facts


EXPLODED = {
    "advantages": {"advantage": lambda n: 0.5 if n < 12 else 20.0},
    "gradients": {"grad_norm": lambda n: 1.0 if n < 12 else 30.0},
    "a loss that is no number": {"loss": lambda n: 0.1 if n < 15 else float("nan")},
}


@pytest.mark.parametrize("what", sorted(EXPLODED))
def test_values_that_explode_are_found_within_four_steps(books_of, what):
    """D6: forty and thirty times what was usual over twelve steps; NaN at once."""
    assert judged(books_of(steps(16, **EXPLODED[what])))["ill"] == ["value_divergence"]


def test_values_that_grow_threefold_or_are_few_are_no_divergence(books_of):
    """Chance and schedules move them as well."""
    assert (
        of(judged(books_of(steps(16, grad_norm=lambda n: 1.0 if n < 12 else 2.5))), "value_divergence")["state"]
        == "well"
    )
    assert of(judged(books_of(steps(5))), "value_divergence")["state"] == "unknown"


def test_samples_that_pile_up_faster_than_they_are_trained_overflow(books_of):
    """C8: 17 samples of two turns, four turns to a step: 8.5 steps wait, and at nine steps of age they are dropped."""
    piled = [fact for n in range(17) for fact in (*dispatched(n, 0), ready(n, 0))]
    found = judged(books_of(piled), age_steps_max=8)
    assert found["ill"] == ["storage_overflow"]
    assert "17 samples with 170 tokens wait, 8.5 steps of training" in of(found, "storage_overflow")["figure"]


@pytest.mark.parametrize(
    ("room", "state"),
    [
        (Room(10**9, 20 * 10**9, 3_602.0), "ill"),
        (Room(10**9, 30 * 10**9, 3_602.0), "well"),
        (Room(10**9, 10**9, None), "ill"),
        (Room(), "well"),
    ],
)
def test_a_disk_that_is_full_within_a_day_overflows(whole, room, state):
    """1 GB in the hour since the first dispatch (at 2 s): 20 GB last 20 h, 30 GB last 30 h; less than 1 GiB is too little whatever the rate."""
    assert of(judged(whole, room), "storage_overflow")["state"] == state


def published(version: int, at_s: float) -> r.WeightsPublished:
    return r.WeightsPublished(version=version, path="w", checksum="c", bytes=1, at_s=at_s)


def test_a_cell_that_stopped_taking_new_weights_lags(books_of):
    """C8: published 1 … 10 at 10 s each; cell-1 has sampled with version 2 (and 3) to the end, cell-0 with what there was."""
    facts: list[r.Fact] = [published(version, 10.0 * version) for version in range(1, 11)]
    for n in range(10):
        facts += [*dispatched(n, n), leased(n, 0), leased(n, 1)]
        for member, version in ((0, n), (1, min(n, 2))):
            made = call(n, member, 0, version=version)
            facts.append(msgspec.structs.replace(made, cells=[f"cell-{member}"], at_s=10.0 * n + 12.0))
    found = judged(books_of(facts))
    assert found["ill"] == ["sampling_lag"]
    assert "cell-1 still samples with version 3, 7 steps behind" in of(found, "sampling_lag")["figure"]


def test_staleness_above_the_law_is_lag(books_of):
    """A5: dispatched at 0 and trained at step 4: 4 steps where the law says ½ (φ 0, μ 2) or less."""
    found = of(judged(books_of([*dispatched(0, 0), ready(0, 0), *step(4, [(0, 0, 1)])])), "sampling_lag")
    assert found["state"] == "ill" and "staleness 4.00 steps" in found["figure"]


@pytest.mark.parametrize(("count", "state"), [(3, "ill"), (1, "well")])
def test_executions_dropped_by_age_are_lag(books_of, count, state):
    """C9: three of 43 are 7 %, one of 41 is 2.4 %; the line is one in twenty."""
    facts = [fact for n in range(40) for fact in (*dispatched(n, 39), ready(n, 0, version=39))] + step(
        39, [(n, 0, 1) for n in range(40)]
    )
    facts += [
        fact
        for n in range(40, 40 + count)
        for fact in (*dispatched(n, 20), dropped(n, 0, "age", step=39, age_steps=19))
    ]
    assert of(judged(books_of(facts)), "sampling_lag")["state"] == state


def test_alarms_stand_beside_the_illness_they_speak_of_and_make_nobody_ill(books_of):
    """The doctor judges by the books; what has been said is shown."""
    alarm = r.AlarmRaised(kind="ledger_database", message="disk full", service="ledger", at_s=1.0)
    found = of(judged(books_of([*history(), alarm])), "storage_overflow")
    assert (found["state"], found["alarms"]) == ("well", {"ledger_database": 1})
    assert "refused facts 1 times" in found["figure"]
