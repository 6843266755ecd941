"""Spans of what the scheduler sees completed (E)."""

from services.scheduler import app
from services.scheduler.core import Settings, State, apply
from tests.unit.scheduler import facts


def test_each_phase_of_a_role_change_and_each_burst_is_one_span(monkeypatch):
    """E: a phase lasts from the phase before it; a burst from boundary to publish; repeats give no second span."""
    seen = []
    monkeypatch.setattr(app, "emit_span", lambda name, start_s, end_s, **_: seen.append((name, start_s, end_s)))
    state = State(Settings(cells=1, cell_capacity=4, groups_per_step=1, steps_per_publish=1, extra_depth_steps=0.0))
    for fact in (
        facts.role("cell-0", 0, "rollout", "requested", 1.0),
        facts.role("cell-0", 0, "rollout", "released", 2.0),
        facts.role("cell-0", 0, "rollout", "released", 2.0),
        facts.role("cell-0", 0, "rollout", "loaded", 4.0),
        facts.started_run(2, at_s=5.0),
        facts.published(1, at_s=9.0),
        facts.published(1, at_s=9.0),
    ):
        app.trace(state, fact)
        apply(state, fact)
    assert seen == [("cell.role", 1.0, 2.0), ("cell.role", 2.0, 4.0), ("burst", 5.0, 9.0)]
