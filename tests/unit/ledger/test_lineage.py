"""Lineage both ways, paged; waits and promotions as curves: by hand from the small run of ledger_history (E, C1, C7)."""

import importlib

import msgspec
import pytest
import sqlalchemy as sa

from gyre import records as r
from gyre.errors import InvalidInput, NotFound
from services.ledger.queries import tiers
from services.ledger.queries.asked import QUESTIONS, Asked, ask
from services.ledger.queries.lineage import lineage, of_name
from tests.unit.ledger.ledger_history import RUN, config, dispatched, history


def asked(database, name, **page):
    with database.read() as connection:
        return lineage(connection, RUN, name, **page)


@pytest.mark.parametrize(
    ("name", "about", "rows", "limit"),
    [
        ("bill", ["attempt", "tenant", "model_version"], "rows", 2),
        ("explain", ["g000001-e1-a2"], "call_list", 1),
        ("trace", ["ab" * 16], "spans", 2),
    ],
)
def test_long_lists_are_read_page_by_page(whole, name, about, rows, limit):
    """E: what is larger than a message is had in pieces, every row once, whatever comes in meanwhile."""

    def span(connection, number: int) -> None:
        connection.execute(sa.text(
            "INSERT INTO spans (run, trace_id, span_id, parent_id, name, start_ns, end_ns, attributes_json, links_json) "
            "VALUES (:run, :trace, :id, '', 'n', :number, 9, '{}', '[]')"
        ), {"run": RUN, "trace": "ab" * 16, "id": f"{number:016x}", "number": number})  # fmt: skip

    with whole.writing.begin() as connection:
        for number in range(2, 7):
            span(connection, number)

    def asked(**page):
        with whole.read() as connection:
            return ask(connection, name, Asked(RUN, config(), tuple(about), **page))

    full = asked()
    pages = [asked(limit=limit)]
    with whole.writing.begin() as connection:
        span(connection, 1)  # before what was told already
    while pages[-1]["next"]:
        pages.append(asked(limit=limit, after=pages[-1]["next"]))
    assert "next" not in full and len(pages) > 1 and all(len(page[rows]) <= limit for page in pages)
    assert [row for page in pages for row in page[rows]] == full[rows]
    if name == "bill":
        assert all({**page, rows: full[rows]} == {**full, "next": page["next"]} for page in pages)
    for page in ({"after": "nonsense"}, {"limit": -1}, {"limit": 10_001}):
        with pytest.raises(InvalidInput):
            asked(**page)


def test_a_step_leads_to_its_samples_their_groups_and_the_versions_that_sampled_them(whole):
    """Step 1 trained both of g000001: two calls of three tokens each, two by version 0 and one by version 1."""
    found = asked(whole, "1")
    assert (found["kind"], found["counts"]) == ("step", {"samples": 2, "groups": 1})
    assert [one["sample_id"] for one in found["samples"]] == ["g000001-e0-a1", "g000001-e1-a2"]
    assert found["steps"] == [{"step": 1, "version": 2, "samples": 2, "replays": 0}]
    assert found["groups"] == [{"group_id": "g000001", "policy_version": 0, "samples": 2}]
    assert [(one["version"], one["tokens"], one["samples"], one["made_by_step"]) for one in found["versions"]] == [
        (0, 8, 2, None),
        (1, 4, 2, 0),
    ]
    assert found["versions"][1]["published_at_s"] == 30.0


def test_a_version_leads_to_what_it_sampled_and_to_the_steps_trained_on_it(whole):
    """Version 1 sampled one token of each call of versions 0 and 1: of every sample with calls, eight of train groups and the evaluation."""
    found = asked(whole, "v1")
    assert {one["step"] for one in found["steps"]} == {0, 1}
    assert found["counts"]["samples"] == 8
    assert {one["sample_id"]: one["dropped"] for one in found["samples"] if one["dropped"]} == {
        "g000002-e0-a1": "no_gradient", "g000002-e1-a1": "no_gradient", "g000003-e1-a1": "age",
    }  # fmt: skip
    assert [one["version"] for one in found["versions"]] == [0, 1, 2]


def test_a_sample_an_execution_and_a_group_lead_to_the_same_step(whole):
    """g000001-e1 was lost once: its execution has two samples, of which the second was trained."""
    sample, execution, group = (asked(whole, name) for name in ("g000001-e1-a2", "g000001-e1", "g000001"))
    assert [one["counts"]["samples"] for one in (sample, execution, group)] == [1, 2, 3]
    assert all([one["step"] for one in found["steps"]] == [1] for found in (sample, execution, group))
    assert [one["step"] for one in execution["samples"]] == [None, 1]


def test_pages_follow_each_other_and_leave_nothing_out(whole):
    """A cursor is the last name of its page."""
    every = [one["sample_id"] for one in asked(whole, "v0")["samples"]]
    paged, after = [], ""
    while True:
        page = asked(whole, "v0", after=after, limit=2)
        paged += [one["sample_id"] for one in page["samples"]]
        if not (after := page["next"]):
            break
    assert paged == every and len(every) > 4


@pytest.mark.parametrize(
    ("name", "meant"),
    [("12", ("step", 12)), ("step 12", ("step", 12)), ("v12", ("version", 12)), ("g000012", ("group", "g000012")),
     ("g000012-e3", ("execution", "g000012-e3")), ("g000012-e3-a1", ("sample", "g000012-e3-a1"))],
)  # fmt: skip
def test_what_is_meant_is_told_by_its_form(name, meant):
    assert of_name(name) == meant


def test_what_there_is_not_is_said(whole):
    with pytest.raises(NotFound, match="no step 99 with samples"):
        asked(whole, "99")
    with pytest.raises(InvalidInput, match="limit 0"):
        asked(whole, "1", limit=0)
    with pytest.raises(InvalidInput, match="names neither"):
        asked(whole, "a b")


def waited(index: int, tier: str, wait_s: float, promotions: int, at_s: float, enqueued_in: str = "") -> list[r.Fact]:
    submitted, sent = dispatched(index, 0)
    return [
        msgspec.structs.replace(submitted, tier=enqueued_in or tier),
        msgspec.structs.replace(sent, tier=tier, queue_wait_s=wait_s, promotions=promotions, at_s=at_s),
    ]


def test_waits_are_quantiles_over_time_and_promotions_shares(books_of):
    """C1: 100 groups of tier `short` that waited 1 … 100 s in 100 s; half of the last ten came from `long`, promoted twice."""
    facts = [
        fact for number in range(100)
        for fact in waited(number, "short", number + 1.0, 2 * (number >= 95), 1000.0 + number, "long" if number >= 95 else "")
    ]  # fmt: skip
    with books_of(facts).read() as connection:
        found = tiers(connection, RUN, config(), points=10)
    total = found["tiers"]["short"]
    assert total["wait_s"] == {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0, "mean": 50.5}
    assert (total["promotions"], total["promoted_share"], total["executions"]) == (10, 0.05, 200)
    curve = found["curves"]["short"]
    assert len(curve) == 10 and sum(point["groups"] for point in curve) == 100
    assert [point["promoted_share"] for point in curve][:9] == [0.0] * 9 and curve[9][
        "promoted_share"
    ] == pytest.approx(0.5, abs=0.05)
    assert found["arrived"] == {"short": {"short": 95}, "long": {"short": 5}}
    assert found["starved"] == {"short": 0}


def test_a_starved_tier_is_counted_by_the_alarms_own_line(books_of):
    """C1: scheduler.starvation_s is 3600 by default."""
    with books_of([*waited(0, "long", 3601.0, 0, 5.0), *waited(1, "long", 3599.0, 0, 6.0)]).read() as connection:
        assert tiers(connection, RUN, config())["starved"] == {"long": 1}


def test_no_groups_make_no_curves(books_of):
    with books_of([]).read() as connection:
        assert tiers(connection, RUN, config())["curves"] == {}


NAMES = {"SAMPLE": "g000001-e1-a2", "NAME": "1", "DIMENSION…": "tenant"}


def test_every_question_has_the_same_answer_on_postgresql(whole, on_postgres):
    """C6, E: one set of queries for both databases."""
    told = []
    for database in (whole, on_postgres(history())):
        with database.read() as connection:
            told.append({
                question: ask(connection, question, Asked(RUN, config(), tuple(NAMES[name] for name in QUESTIONS[question].names.split())))
                for question in sorted(set(QUESTIONS) - {"trace"})
            })  # fmt: skip
    assert told[0] == told[1]


def test_what_is_no_question_is_said_with_those_there_are(whole):
    with (
        whole.read() as connection,
        pytest.raises(
            InvalidInput, match="'weather' with 0 names is no question; ask one of: agreement, audit, bill DIM"
        ),
    ):
        ask(connection, "weather", Asked(RUN, config()))


@pytest.mark.parametrize("kind", ["step", "version", "group", "execution", "sample"])
def test_no_question_reads_a_whole_run_for_each_of_its_samples(whole, kind):
    """E: with ten million facts that took minutes. Steps (for the version they made) and the elite store are small."""
    module = importlib.import_module("services.ledger.queries.lineage")
    bound = {"run": RUN, "name": 1, "after": "", "most": 100}
    with whole.read() as connection:
        for query in (module.SAMPLES, module.STEPS, module.GROUPS, module.VERSIONS, module.COUNTS):
            text = sa.text(f"EXPLAIN QUERY PLAN {query.format(members=module._MEMBERS[kind])}")
            named = {name: value for name, value in bound.items() if f":{name}" in str(text)}
            plan = [row[3] for row in connection.execute(text, named)]
            small = ("SEARCH u ", "SEARCH e USING COVERING INDEX sqlite_autoindex_elite")
            assert [
                step for step in plan if ("(run=?)" in step or "sample_id>?" in step) and not step.startswith(small)
            ] == [], query
