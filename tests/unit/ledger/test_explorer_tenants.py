"""What a tenant's session is told by the trace explorer: its own rows, and nothing of anybody else's (C12)."""

import json

import msgspec
import pytest

from gyre import records as r
from gyre.errors import NotFound
from services.ledger.explorer.answers import ANSWERS
from services.ledger.explorer.answers.sample import sample
from tests.unit.ledger.ledger_history import changed, history
from tests.unit.ledger.test_explorer import scope

ACME = {"g000001", "g000003"}
"""Groups of a second tenant."""


@pytest.fixture
def tenants_of(books_of):
    """Facts → a ledger in which the groups of ACME are acme's."""

    def build(facts):
        for group in ACME:
            task = next(fact.task for fact in facts if isinstance(fact, r.GroupSubmitted) and fact.group_id == group)
            facts = changed(
                facts,
                r.GroupSubmitted,
                lambda f, g=group: f.group_id == g,
                task=msgspec.structs.replace(task, tenant="acme"),
            )
        return books_of(facts)

    return build


@pytest.fixture
def two_tenants(tenants_of):
    return tenants_of(history())


@pytest.mark.parametrize("question", sorted(ANSWERS))
def test_a_tenant_is_told_nothing_of_anothers_rows(two_tenants, question):
    """C12 and the explorer's promise: every answer, with every filter that could reach across, holds own ids only."""
    with two_tenants.read() as connection:
        for address in (
            {},
            {"tenant": "default"},
            {"group": "g000000"},
            {"step": 0},
            {"version": 1},
            {"sample": "g000001-e0-a1"},
        ):
            if question == "sample" and "sample" not in address:
                continue
            text = json.dumps(ANSWERS[question](connection, scope("acme", **address)), default=str)
            for index in (0, 2, 4, 5):
                assert f"g00000{index}" not in text, (question, address)


def others_differ(facts):
    """The same facts of acme's groups; what steps and batches were made of besides is another story."""
    facts = changed(facts, r.StepUpdated, lambda _: True, metrics={"loss": 77.0, "targets": 7777.0, "grad_norm": 7.0})
    facts = changed(
        facts,
        r.BatchClosed,
        lambda _: True,
        turns=7777,
        truncated_share=0.77,
        staleness_mean=7.7,
        staleness_max=7,
        divisor=7777,
    )
    for kind in (r.ExecutionEnded, r.SampleReady):
        turns = (
            {"turns": 77, "tokens_sampled": 7777}
            if kind is r.ExecutionEnded
            else {"turns": 77, "reward": 0.77, "advantage": 7.7}
        )
        facts = changed(facts, kind, lambda fact: fact.execution_id.split("-")[0] not in ACME, **turns)
    return changed(facts, r.GroupDispatched, lambda fact: fact.group_id not in ACME, queue_wait_s=777.0, promotions=7)


@pytest.mark.parametrize("question", sorted(ANSWERS))
def test_what_a_tenant_is_told_is_the_same_whatever_the_others_do(tenants_of, question):
    """C12: no figure of all tenants together, of which one that knows its own share could work out the others'."""
    told = []
    for facts in (history(), others_differ(history())):
        database = tenants_of(facts)
        with database.read() as connection:
            told.append(
                [
                    ANSWERS[question](connection, scope("acme", sample="g000001-e0-a1", purpose="all", **step))
                    for step in ({}, {"step": 1})
                ]
            )
    assert json.dumps(told[0], default=str) == json.dumps(told[1], default=str)


def test_anothers_sample_is_not_there_and_nothing_near_it_is_named(two_tenants):
    with two_tenants.read() as connection:
        with pytest.raises(NotFound) as error:
            sample(connection, scope("acme", sample="g000000-e0-a1"))
        assert str(error.value) == "no sample g000000-e0-a1 in this run"
        with pytest.raises(NotFound) as error:
            sample(connection, scope("acme", sample="g000000-e9-a1"))
        assert "g000000-e0" not in str(error.value)
        assert sample(connection, scope("acme", sample="g000001-e0-a1"))["state"] == "trained"
