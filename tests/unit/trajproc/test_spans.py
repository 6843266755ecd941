"""Memory of what is over is bounded by what is in flight (agent-lightning#438)."""

import random

from hypothesis import given
from hypothesis import strategies as st

from gyre import ids
from services.trajproc.core.spans import GroupNames, Spans
from tests.unit.trajproc.builders import Live, config, dispatched, group, leased, opened


@given(st.lists(st.integers(-5, 60)))
def test_spans_are_a_set_that_costs_its_gaps(numbers):
    """The same members as a set; as many spans as there are members whose predecessor is missing."""
    spans, plain = Spans(), set()
    for number in numbers:
        spans.add(number)
        plain.add(number)
        assert len(spans) == sum(one - 1 not in plain for one in plain)
    assert [number for number in range(-10, 70) if number in spans] == sorted(plain)


def test_names_that_are_no_numbers_are_kept_as_they_are():
    """g1 is not how group 1 is named, so both are themselves; so is what no run would ever name."""
    names = GroupNames()
    for name in ("g000001", "g1", "x", "g\u0663", "g1000000", ""):
        assert name not in names
        names.add(name)
        assert name in names
    assert ids.group_id(1000000) in names and ids.group_id(2) not in names


def test_a_long_run_remembers_what_is_in_flight_and_nothing_else():
    """agent-lightning#438: 400 groups, each trained or dropped, at most 8 in flight in any order: never more than 9 spans, no groups, no intents;
    a lease that comes late for a group long gone makes no new one."""
    draw = random.Random(1)
    live, waiting = Live(config(turns_per_step=2, age_steps_max=100)), []
    for index in range(400):
        waiting.append(ids.group_id(index))
        if len(waiting) == 8:
            name = waiting.pop(draw.randrange(8))
            live.see(opened(index), *group(name, [1.0, 0.0], version=0))
            assert live.processor.done.size <= 9
    assert not live.processor.groups and not live.processor.intents and not live.processor.payloads
    assert ids.group_id(0) in live.processor.done
    live.see(leased(ids.group_id(0), 1, 7), dispatched(ids.group_id(0), 2, base=9))
    assert not live.processor.groups
