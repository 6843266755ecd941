"""Pairwise agreement by hand, its interval, the weight it leaves; judgements from files (D8)."""

import argparse
import json

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import records as r
from gyre.clock import SystemClock
from gyre.config.load import parse
from gyre.errors import InvalidInput
from services.ledger.core.agreement import pairwise, weight, wilson
from services.ledger.judging import import_judgements
from services.ledger.once import drifted, judged, weighings
from services.ledger.queries import agreement
from services.ledger.queries.doctor import Room, doctor
from services.ledger.queries.sql import rows
from tests.unit.ledger.ledger_history import RUN, config, history


def test_agreement_is_of_pairs_that_people_order_and_a_tie_of_the_model_counts_half():
    """People score 1, 2, 2, 4: five of six pairs are ordered; the model scores 1, 3, 2, 1."""
    found = pairwise(np.array([1, 2, 2, 4]), np.array([1, 3, 2, 1]))
    # ordered by people: (0,1) right, (0,2) right, (0,3) tie ½, (1,3) wrong, (2,3) wrong
    assert (found.pairs, found.agreement) == (5, 2.5 / 5)


def test_pairs_are_of_one_kind():
    """Two task types of two samples: one pair each, one right and one wrong."""
    found = pairwise(np.array([1, 2, 1, 2]), np.array([1, 2, 2, 1]), np.array(["a", "a", "b", "b"]))
    assert (found.pairs, found.agreement) == (2, 0.5)


def test_the_interval_of_wilson_by_hand():
    """p = .8 of n = 10 at z = 1.96: centre (.8 + .19208)/1.38416 = .71674, half width .22661 (Wilson 1927, as tabulated: .490 to .943)."""
    assert wilson(0.8, 10) == (pytest.approx(0.4901, abs=1e-3), pytest.approx(0.9433, abs=1e-3))
    assert wilson(1.0, 0) == (0.0, 1.0)


def test_the_weight_is_nothing_at_a_coins_level_and_all_at_the_line():
    """clip((LB − ½)/(a₀ − ½), 0, 1)"""
    assert [weight(low, 0.75) for low in (0.2, 0.5, 0.625, 0.75, 0.9)] == [0.0, 0.0, 0.5, 1.0, 1.0]


@given(
    scores=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12),
    scale=st.integers(1, 9),
    shift=st.integers(-9, 9),
)
@settings(max_examples=60, deadline=None)
def test_scales_do_not_matter_and_the_interval_holds_the_agreement(scores, scale, shift):
    """Order alone counts; effective pairs lie between half the samples and all pairs."""
    people, model = (np.array([pair[place] for pair in scores], float) for place in (0, 1))
    found, other = pairwise(people, model), pairwise(people, model * scale + shift)
    assert found == other
    if found.pairs:
        assert 0 <= found.low <= found.agreement <= found.high <= 1
        assert found.effective <= found.pairs
        assert pairwise(people, -model).agreement == pytest.approx(1 - found.agreement)


def test_the_interval_covers_the_truth_nineteen_times_in_twenty():
    """300 draws of 30 samples, the model's error as large as what people differ by: 95 % of intervals hold the mean agreement, up to 3 %."""
    draw = np.random.default_rng(11)
    found = []
    for _ in range(300):
        truth = draw.normal(size=30)
        found.append(pairwise(truth + 0.3 * draw.normal(size=30), truth + draw.normal(size=30)))
    mean = np.mean([one.agreement for one in found])
    assert np.mean([one.low <= mean <= one.high for one in found]) == pytest.approx(0.95, abs=0.03)


SAMPLES = ["g000000-e0-a1", "g000000-e1-a1", "g000001-e0-a1", "g000001-e1-a2"]


def written(path, kind: str):
    table = [{"sample_id": name, "judge": judge, "kind": "model" if judge == "taste2" else "person", "score": float(place),
              "at_s": 86_400.0 * place} for place, name in enumerate(SAMPLES) for judge in ("ann", "taste2")]  # fmt: skip
    file = path / f"j.{kind}"
    if kind == "csv":
        lines = [",".join(map(str, row.values())) for row in table]
        file.write_text("\n".join([",".join(table[0]), *lines]))
    elif kind == "jsonl":
        file.write_text("\n".join(json.dumps(row) for row in table))
    else:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(table), file)
    return file


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_judgements_come_from_any_of_three_formats_and_again_change_nothing(whole, tmp_path, kind):
    """D8: four samples, six pairs, all in the same order; by day too."""
    file = written(tmp_path, kind)
    for _ in range(2):
        assert import_judgements(whole, RUN, file, 5.0) == {"stored": 8, "refused": 0, "examples": []}
    with whole.read() as connection:
        found = agreement(connection, RUN, config())
    (model,) = [one for one in found["models"] if one["model"] == "taste2"]
    assert (model["samples"], model["pairs"], model["agreement"], found["people"]) == (4, 6, 1.0, {"ann": 4})
    assert list(model["by_day"]) == ["1970-01-01", "1970-01-02", "1970-01-03", "1970-01-04"]
    assert model["low"] < 0.75 and model["weight"] < 1, "four samples prove nothing"


def test_a_models_own_scores_are_used_where_none_are_imported(whole, tmp_path):
    """`taste` gave g000001-e1-a2 .75 while the run went on; there is one such sample, so no pair."""
    import_judgements(whole, RUN, written(tmp_path, "csv"), 5.0)
    with whole.read() as connection:
        (model,) = [one for one in agreement(connection, RUN, config())["models"] if one["model"] == "taste"]
    assert (model["samples"], model["pairs"], model["agreement"], model["weight"]) == (1, 0, None, None)


def test_rows_that_say_nothing_usable_are_named_and_the_others_taken_in(whole, tmp_path):
    """Bad input: an unknown sample, no score, a score that is no number, a kind there is not, broken JSON, a moment that is none."""
    good = {"sample_id": SAMPLES[0], "judge": "ann", "score": 1}
    lines = [good, {**good, "sample_id": "g9-e9-a1"}, {"sample_id": SAMPLES[1], "judge": "ann"}, {**good, "score": "x"},
             {**good, "score": "nan"}, {**good, "kind": "dog"}, {**good, "at_s": "yesterday"}]  # fmt: skip
    file = tmp_path / "j.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n[1]\n")
    told = import_judgements(whole, RUN, file, 5.0)
    assert (told["stored"], told["refused"]) == (1, 8)
    assert sorted(one["row"] for one in told["examples"]) == [2, 3, 4, 5, 6, 7, 8, 9]
    for bad in ("j.txt", "absent.csv"):
        with pytest.raises(InvalidInput):
            import_judgements(whole, RUN, tmp_path / bad, 5.0)
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(InvalidInput, match="no Parquet file"):
        import_judgements(whole, RUN, tmp_path / "bad.parquet", 5.0)


STRANGE = {
    "nanoseconds": ("at_s", "1700000000000000000", "at_s 1.7e+18 is no moment in Unix seconds"),
    "milliseconds": ("at_s", "1700000000000", "at_s 1.7e+12 is no moment in Unix seconds"),
    "beyond any clock": ("at_s", "1e300", "no moment in Unix seconds"),
    "before Unix": ("at_s", "-1", "no moment in Unix seconds"),
    "a year without a clock": ("at_s", '"0001-01-01T00:00:00"', ""),
    "a whole number beyond a real one": ("score", "1" + "0" * 400, "too large"),
    "a score that has no mean": ("score", "-1e308", "score -1e+308 is no number from -1e+100"),
    "half a character": ("judge", '"\\ud800"', "surrogates"),
    "Python's underscores": ("score", '"1_0"', "no decimal number"),
    "digits of another script": ("score", '"\\u0663"', "no decimal number"),
    "true": ("score", "true", "no bool"),
    "infinity": ("score", '"inf"', "no decimal number"),
    "a moment with underscores": ("at_s", '"1_0"', ""),
    "lists in lists": ("score", "[" * 100_000 + "]" * 100_000, ""),
}  # fmt: skip


@pytest.mark.parametrize("what", STRANGE)
def test_a_row_whose_numbers_no_question_can_use_is_named_and_the_others_taken_in(whole, tmp_path, what):
    """What is committed is asked about for ever: a moment that no calendar has would end every answer."""
    name, written, why = STRANGE[what]
    good = {"sample_id": SAMPLES[0], "judge": "ann", "score": 1}
    row = json.dumps({**good, name: "HERE"}).replace('"HERE"', written)
    file = tmp_path / "j.jsonl"
    file.write_text("\n".join([row, json.dumps({**good, "at_s": 253402300799}), json.dumps({**good, "judge": "bob"})]))
    told = import_judgements(whole, RUN, file, 5.0)
    assert (told["stored"], [one["row"] for one in told["examples"]]) == (2, [1])
    assert why in told["examples"][0]["why"]
    with whole.read() as connection:
        assert agreement(connection, RUN, config())["people"] == {"ann": 1, "bob": 1}


def test_judgements_of_no_moment_that_are_stored_already_count_without_a_day(whole, tmp_path):
    """Books that took them before they were refused: agreement and the doctor answer as without their times."""
    import_judgements(whole, RUN, written(tmp_path, "csv"), 5.0)
    moments = zip(SAMPLES, (1.7e18, 1e300, -5.0, None), strict=True)
    with whole.writing.begin() as connection:
        for name, at_s in moments:
            values = {"at_s": at_s, "score": 1e308, "name": name}
            connection.execute(sa.text("UPDATE judgements SET at_s = :at_s WHERE sample_id = :name"), values)
            connection.execute(sa.text("INSERT INTO judgements (run, judge, sample_id, kind, score, task_type, at_s) "
                                       "VALUES ('t', 'eve', :name, 'person', :score, 'repair', :at_s)"), values)  # fmt: skip
    with whole.read() as connection:
        found = agreement(connection, RUN, config())
        doctor(connection, RUN, config(), Room())
    (model,) = [one for one in found["models"] if one["model"] == "taste2"]
    assert (found["people"], model["samples"], model["by_day"], model["fell"]) == ({"ann": 4, "eve": 4}, 4, {}, None)


def test_a_later_word_replaces_the_earlier(whole, tmp_path):
    """People correct themselves."""
    file = tmp_path / "j.jsonl"
    for score in (1, 2):
        file.write_text(json.dumps({"sample_id": SAMPLES[0], "judge": "ann", "score": score}))
        import_judgements(whole, RUN, file, 5.0)
    with whole.read() as connection:
        assert [row["score"] for row in rows(connection, "SELECT score FROM judgements")] == [2.0]


class Asking:
    """What `judged` reads of a service's context; its bus is away."""

    def __init__(self, file) -> None:
        self.arguments = argparse.Namespace(import_judgements=file)
        self.run, self.clock = RUN, SystemClock()
        self.config = parse({"run": {"name": RUN}, "model": {"path": "m"}, "ledger": {"agreement_full": 0.9}}, "test")

    async def bus(self, identity):
        raise InvalidInput("away")


async def test_an_import_that_shows_drift_says_so_also_where_the_bus_is_away(whole, tmp_path):
    """D8: the model orders every pair the other way round."""
    file = tmp_path / "j.jsonl"
    table = [{"sample_id": name, "judge": judge, "kind": kind, "score": sign * place} for place, name in enumerate(SAMPLES)
             for judge, kind, sign in (("ann", "person", 1), ("bad", "model", -1))]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, table)))
    told = await judged(whole, Asking(file))
    assert told["alarms"] == ["bad agrees with people in 0% of 6 pairs; that leaves it 0.00 of its weight"]
    assert not told["raised"]


def test_a_fall_between_days_is_drift_even_above_the_line():
    """D8: agreement falling. The intervals of the newest day and of all before are apart."""
    model = {"model": "m", "agreement": 0.8, "pairs": 900, "weight": 1.0, "high": 0.9,
             "fell": {"day": "2026-11-30", "before": 0.95, "now": 0.7, "by_at_least": 0.1}}  # fmt: skip
    assert "on 2026-11-30 it fell from 95% to 70%" in drifted(model, 0.75)
    assert drifted({**model, "fell": {**model["fell"], "by_at_least": -0.1}}, 0.75) == ""


def test_postgresql_takes_judgements_as_well(on_postgres, tmp_path):
    """C6"""
    database = on_postgres(history())
    assert import_judgements(database, RUN, written(tmp_path, "csv"), 5.0)["stored"] == 8
    with database.read() as connection:
        assert agreement(connection, RUN, config())["people"] == {"ann": 4}


def test_weights_are_said_of_learned_evaluators_that_people_know_and_only_where_they_change():
    """A lower bound of .6 leaves .4 of a weight of .04; what is in force already is not said again; rules and strangers are never weighed."""
    kinds = (("taste", "learned"), ("rest", "learned"), ("known", "learned"), ("rule", "rule"))
    evaluators = [{"name": name, "kind": kind, "weight": 0.02, "url": "http://127.0.0.1:1/x"} for name, kind in kinds]
    evaluators[0]["weight"] = 0.04
    settings = parse({"run": {"name": RUN}, "model": {"path": "m"}, "evaluators": evaluators}, "test")
    about = {"agreement": 0.7, "low": 0.6, "pairs": 90, "weight": 0.4, "in_force": None}
    models = [
        {"model": "taste", **about}, {"model": "rule", **about}, {"model": "stranger", **about},
        {"model": "rest", **about, "weight": None}, {"model": "known", **about, "in_force": {"weight": 0.008, "at_s": 1.0}},
    ]  # fmt: skip
    ((fact, was),) = weighings({"models": models}, settings, 9.0)
    assert (fact.evaluator, fact.weight, fact.share, fact.low, fact.pairs, fact.at_s, was) == (
        "taste",
        0.016,
        0.4,
        0.6,
        90,
        9.0,
        0.04,
    )


def test_the_weight_in_force_stands_beside_the_one_that_agreement_leaves(books_of, tmp_path):
    """The newest fact counts."""
    said = [
        r.RewardWeighed(evaluator="taste", weight=weight, share=weight, agreement=0.6, low=0.55, pairs=9, at_s=at_s)
        for weight, at_s in ((0.3, 2.0), (0.1, 3.0), (0.2, 1.0))
    ]
    database = books_of([*history(), *said])
    with database.writing.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO judgements (run, judge, sample_id, kind, score, task_type, at_s) "
            "VALUES ('t', 'taste', 'g000000-e0-a1', 'model', 1, 'repair', 1)"
        )
    with database.read() as connection:
        (model,) = [one for one in agreement(connection, RUN, config())["models"] if one["model"] == "taste"]
    assert model["in_force"] == {"weight": 0.1, "at_s": 3.0}
