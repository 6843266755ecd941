"""A call's role and what decided it, on the page of its sample (B5, C11)."""

import msgspec

from services.ledger.queries import explain
from tests.unit.ledger.ledger_history import RUN, call, history


def test_explain_shows_the_role_of_each_call_and_the_rule_that_decided_it(books_of):
    """The first call was made main by a rule, the second nobody knew; a record of before there were rules says nothing."""
    said = [("main", "mine/planner"), ("unknown", "")]
    known = {
        call(0, 0, number).call_id: msgspec.structs.replace(call(0, 0, number), role=role, role_rule=rule)
        for number, (role, rule) in enumerate(said)
    }
    facts = [known.get(getattr(fact, "call_id", ""), fact) for fact in history()]
    with books_of(facts).read() as connection:
        page = explain(connection, RUN, "g000000-e0-a1")
        other = explain(connection, RUN, "g000000-e1-a1")
    assert [(row["role"], row["role_rule"]) for row in page["call_list"]] == said
    assert page["calls"]["by_role"] == {"main": 1, "unknown": 1}
    assert {row["role_rule"] for row in other["call_list"]} == {""}
