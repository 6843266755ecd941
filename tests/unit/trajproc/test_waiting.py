"""Groups in order of age, and what the processor finds ready or unfinished (C8)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.trajproc.app import vocabulary_of
from services.trajproc.core.state import Group
from services.trajproc.core.waiting import ByAge
from tests.unit.trajproc.builders import Live, config, dispatched, execution, opened, started

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=40)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_groups_come_and_go_and_stand_by_version_then_order_of_dispatch(steps):
    """As a sorted list would have them; a repeat of either changes nothing."""
    groups = [Group(f"g{order}", policy_version=order % 3, order=order) for order in range(9)]
    waiting, wanted = ByAge(), set()
    for is_added, order in steps:
        (waiting.add if is_added else waiting.discard)(groups[order])
        (wanted.add if is_added else wanted.discard)(order)
        found = sorted(wanted, key=lambda order: (order % 3, order))
        assert [group.order for group in waiting] == found and len(waiting) == len(found)
        assert not found or waiting[0].order == found[0]
        assert [waiting.has_version(v) for v in range(3)] == [any(o % 3 == v for o in wanted) for v in range(3)]


def test_a_lease_a_call_and_an_ending_that_is_not_the_last_ask_for_no_decision(monkeypatch):
    """A fact costs what it changes: of a group of two only its dispatch and its last ending are news; with 10,000 groups in
    flight looking at all of them took a millisecond a fact."""
    live, news = Live(config(turns_per_step=100)).see(started(), opened(0)), []
    monkeypatch.setattr("services.trajproc.core.fold.decide.decide", lambda pool, at_s: news.append(at_s))
    facts = [dispatched("g000001", 2), *execution("g000001", 0), *execution("g000001", 1, 0.0)]
    for fact in facts:
        live.processor.fold(fact)
    assert len(facts) == 7 and len(news) == 2


def test_the_vocabulary_is_the_model_directorys_and_unknown_where_it_does_not_say(tmp_path):
    """B1: a configuration of text alone, one of several parts, and what is none."""
    for text, size in [
        ('{"vocab_size": 300}', 300),
        ('{"text_config": {"vocab_size": 7}}', 7),
        ("[]", 0),
        ('{"a": 1}', 0),
        ("x", 0),
    ]:
        (tmp_path / "config.json").write_text(text)
        assert vocabulary_of(tmp_path) == size
    assert vocabulary_of(tmp_path / "nowhere") == 0
