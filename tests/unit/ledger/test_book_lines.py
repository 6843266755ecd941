"""The books' running totals and settled lines say what the facts say, in whatever order and pieces these came (C6)."""

import importlib
import random
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gyre import records as r
from gyre.bus.subjects import natural_key
from services.ledger.core.bill_lines import lines
from services.ledger.core.book_lines import fates, used
from services.ledger.queries import audit, books
from services.ledger.queries.broken import BOOKS
from services.ledger.queries.sql import rows
from services.ledger.queries.standing import FATES
from services.ledger.storage import settling
from services.ledger.storage.compacting import compact
from tests.unit.ledger.ledger_history import (
    RUN,
    config,
    dispatched,
    dropped,
    execution,
    history,
    kept_books,
    leased,
    step,
    store,
)

newest = importlib.import_module("services.ledger.migrations.versions.0006_book_lines")

USED_UP = ("no_gradient", "quota", "truncated", "no_targets")


def generated(seed: int) -> list[r.Fact]:
    """Groups whose members end, fail, are lost and tried again, are trained, dropped or used up without gradient; in any order, some not told."""
    chance = random.Random(seed)
    facts: list[r.Fact] = []
    for index in range(chance.randint(1, 7)):
        purpose = chance.choice(("train", "train", "evaluation"))
        told = dispatched(index, chance.randint(0, 3), purpose)
        facts += told
        members = range(len(told[1].execution_ids))
        ended = {}
        for member in members:
            for attempt in range(1, chance.randint(1, 3) + 1):
                if chance.random() < 0.8:
                    ending = chance.choice(("completed", "completed", "timed_out"))
                    facts += execution(
                        index, member, attempt, chance.choice((0.0, 0.5, 1.0)), ending, chance.randint(0, 3), purpose
                    )
                    ended[member] = attempt
                else:
                    facts.append(leased(index, member, attempt))
        reason = chance.choice(("age", "wait", "duplicate", "voided", *USED_UP, "", "", "", ""))
        if reason:
            at = index if reason in USED_UP or chance.random() < 0.3 else -1
            facts += [dropped(index, member, reason, attempt, step=at) for member, attempt in ended.items()]
        elif purpose == "train" and len(ended) == len(members):
            facts += step(index, [(index, member, attempt) for member, attempt in ended.items()])
    chance.shuffle(facts)
    return facts[: chance.randint(len(facts) // 2, len(facts))] if chance.random() < 0.5 else facts


def told_by(facts: list[r.Fact]) -> dict:
    """The same figures, counted one fact after another."""
    once = list({natural_key(fact): fact for fact in reversed(facts)}.values())
    of = lambda kind: [fact for fact in once if isinstance(fact, kind)]  # noqa: E731
    purposes, groups, born = {}, defaultdict(list), defaultdict(list)
    for fact in of(r.GroupDispatched):
        born[fact.group_id].append(fact.policy_version)
        for name in fact.execution_ids:
            purposes[name] = fact.purpose
            groups[fact.group_id].append(name)
    endings = {fact.execution_id: fact for fact in sorted(of(r.ExecutionEnded), key=lambda fact: fact.attempt)}
    samples = {fact.sample_id: fact for fact in of(r.SampleReady)}
    trained = {samples[name].execution_id for fact in of(r.StepUpdated) for name in fact.sample_ids if name in samples}
    reasons: dict[str, str] = {}
    for fact in of(r.SampleDropped):
        if fact.reason != "duplicate":
            reasons[fact.execution_id] = max(fact.reason, reasons.get(fact.execution_id, ""))
    train = [name for name, purpose in purposes.items() if purpose == "train"]
    used = {(fact.step, fact.group_id) for fact in of(r.BatchExtended)}
    used |= {(fact.step, group) for fact in of(r.BatchClosed) for group in fact.groups}
    used |= {(fact.step, fact.group_id) for fact in of(r.SampleDropped) if fact.step >= 0 and fact.reason in USED_UP}
    ages, rewards = defaultdict(list), defaultdict(list)
    for at, group in used:
        for name in groups[group]:
            ages[at].append(at - min(born[group]))
            if name in endings:
                found = samples.get(f"{name}-a{endings[name].attempt}")
                rewards[at].append((found and found.reward, endings[name].ending == "timed_out", endings[name].turns))
    return {
        "turns": Counter(fact.purpose for fact in of(r.CallRecorded)),
        "dispatched": len(train),
        "trained": len(trained & set(train)),
        "dropped": dict(Counter(reasons[name] for name in train if name in reasons)),
        "in_flight": sum(name not in trained and name not in reasons for name in train),
        "evaluated": sum(name in endings for name, purpose in purposes.items() if purpose == "evaluation"),
        "ages": {at: (len(own), sum(own), max(own)) for at, own in ages.items()},
        "rewards": {
            at: (sum(one[0] is not None for one in own), sum(one[0] or 0 for one in own), sum(one[1] for one in own), sum(one[2] for one in own))
            for at, own in rewards.items()
        },
        "versions": Counter(fact.policy_version for fact in endings.values() if fact.purpose == "evaluation"),
    }  # fmt: skip


def in_books(answer: dict) -> dict:
    counts = answer["executions"]
    return {
        "turns": {purpose: own["turns"] for purpose, own in answer["books"]["by_purpose"].items() if own["turns"]},
        "dispatched": counts["dispatched"], "trained": counts["trained"], "dropped": counts["dropped_by_reason"], "in_flight": counts["in_flight"],
        "evaluated": counts["evaluation"]["ended"],
        "ages": {
            row["step"]: (row["executions"], pytest.approx(row["mean"] * row["executions"]), row["max"]) for row in answer["staleness"]["by_step"]
        },
        "rewards": {
            row["step"]: (row["samples"], pytest.approx((row["reward"] or 0) * row["samples"]), *_shares(row)) for row in answer["reward_by_step"]
        },
        "versions": {row["policy_version"]: row["executions"] for row in answer["evaluation"]},
    }  # fmt: skip


def _shares(row):
    """Turns of the history are 2 for each ending, which says how many ended."""
    ended = row["ended"]
    return pytest.approx(row["truncated_share"] * ended), pytest.approx(row["turns_mean"] * ended)


@given(seed=st.integers(0, 2**32), piece=st.integers(1, 30))
@settings(max_examples=25, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_books_are_what_the_facts_say_settled_or_not(seed, piece):
    """C6, A5: facts of any run, in any order, some missing, delivered twice; settled at once, or never."""
    facts = generated(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        live = kept_books(Path(folder) / "live.db", facts)
        patch.setattr(settling, "UNSETTLED_MAX", 0)
        settled = kept_books(Path(folder) / "settled.db", [])
        for start in [*range(0, len(facts), piece), 0]:
            store(settled, facts[start : start + piece])
        with live.read() as one, settled.read() as other:
            wanted, found = (books(connection, RUN, config()) for connection in (one, other))
            assert rows(other, "SELECT * FROM unsettled") == rows(one, "SELECT * FROM fate_lines") == []
            assert rows(one, BOOKS, run=RUN) == rows(other, BOOKS, run=RUN) == []
        live.close()
        settled.close()
    assert found == wanted
    told = told_by(facts)
    for row in found["reward_by_step"]:
        row["ended"] = round(told["rewards"][row["step"]][3] / row["turns_mean"]) if row["turns_mean"] else 0
    assert told == in_books(found)


BROKEN = {
    "a total": ("UPDATE book_totals SET turns = turns + 1 WHERE purpose = 'train'", "book_totals train"),
    "an execution's fate": ("UPDATE fate_lines SET executions = executions + 1 WHERE group_id = 'g000001'", "fate_lines g000001"),
    "a group's lines": ("DELETE FROM fate_lines WHERE group_id = 'g000004'", "fate_lines g000004"),
    "a step's": ("UPDATE step_lines SET age_sum = age_sum + 1 WHERE group_id = 'g000002'", "step_lines g000002"),
    "a reward": ("UPDATE step_lines SET reward_sum = reward_sum + 1 WHERE group_id = 'g000000'", "step_lines g000000"),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(BROKEN))
def test_the_audit_finds_lines_that_are_not_their_facts(whole, what):
    """C14: nothing that is told can do this, only a defect or a hand in the database."""
    settling.settle_all(whole.writing, keep=0)
    statement, line = BROKEN[what]
    with whole.writing.begin() as connection:
        assert connection.exec_driver_sql(statement).rowcount
    with whole.read() as connection:
        wrong = [one for one in audit(connection, RUN, config()) if not one.passed]
    assert [one.name for one in wrong][-1] == "balance_books" and f"line={line}" in wrong[-1].figure


def test_books_on_postgres_are_those_on_sqlite(on_postgres, whole):
    """E: one set of statements, settled and not."""
    database = on_postgres(history())
    for keep in (None, 0):
        settling.settle_all(database.writing, keep=keep)
        with database.read() as one, whole.read() as other:
            assert books(one, RUN, config()) == books(other, RUN, config())
            assert all(criterion.passed for criterion in audit(one, RUN, config()))


@pytest.mark.parametrize("statement", [BOOKS, FATES])
def test_postgres_compiles_no_statement(on_postgres, statement):
    """E: where its planner expects much, as of some thousand executions, it would compile for seconds what runs for milliseconds."""
    database = on_postgres(history())
    for engine in (database.reading, database.writing):
        with engine.connect() as connection:
            connection.exec_driver_sql("SET jit_above_cost = 0")
            plan = [row[0] for row in connection.execute(sa.text(f"EXPLAIN ANALYZE {statement}"), {"run": RUN})]
            assert plan and not any("JIT" in line for line in plan)


def test_books_of_an_older_schema_stay_what_they_were(tmp_path):
    """C6: migration 0006 makes totals and lines of what is there, also where call rows were compacted."""
    database = kept_books(tmp_path / "old.db", history())
    settling.settle_all(database.writing, keep=0)
    compact(database, RUN, 11.0, 99.0)
    with database.read() as connection:
        before = books(connection, RUN, config())
    with database.writing.begin() as connection:
        for table in (*newest._TABLES, "refused", "spans_deleted"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        for index in ("batch_groups_by_group_id", "attempts_by_quota_left"):
            connection.exec_driver_sql(f"DROP INDEX {index}")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0005'")
    database.migrate()
    for _ in range(2):
        with database.read() as connection:
            assert books(connection, RUN, config()) == before
            assert all(one.passed for one in audit(connection, RUN, config()))
        settling.settle_all(database.writing, keep=0)
    database.close()


def test_a_slice_is_settled_by_its_groups_and_never_reads_the_whole_run(whole):
    """E: with ten million facts a statement that follows an index by `run` alone takes seconds, sixty-four groups a few milliseconds."""
    made = (lines("'g000001', 'g000002'"), fates("'g000001', 'g000002'"), used("'g000001', 'g000002'"))
    with whole.read() as connection:
        for statement in made:
            plan = [row[3] for row in connection.execute(sa.text(f"EXPLAIN QUERY PLAN {statement}"), {"run": RUN})]
            assert [
                step
                for step in plan
                if "(run=?)" in step or (step.startswith("SCAN") and step not in ("SCAN m", "SCAN c"))
            ] == []
