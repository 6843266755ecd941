"""The shell and the tidiness of the core."""

import ast
from pathlib import Path

from gyre import records as r
from gyre.bus import BlobStore
from gyre.clock import ManualClock
from services.trajproc import app as shell
from services.trajproc import spans as spans_of_shell
from services.trajproc.core.fold import Processor
from services.trajproc.rpc import state_of
from tests.unit.trajproc.builders import PAYLOAD, config, dispatched, ended, execution, opened, started

CORE = Path(shell.__file__).parent / "core"
FORBIDDEN = {"grpc", "nats", "asyncio", "time", "random", "torch", "datetime", "os"}


class FakeBus:
    def __init__(self) -> None:
        self.published: list = []

    async def publish(self, record) -> None:
        self.published.append(record)


async def test_each_sample_has_a_span_for_its_building_and_its_wait_under_its_executions_trace(tmp_path, monkeypatch):
    """E: children of the ending's traceparent, each beginning where the one before ends. Both executions end at 10 s; the group is complete and its
    samples ready at 100 s, taken at 130 s."""
    spans: list[tuple] = []
    monkeypatch.setattr(
        spans_of_shell,
        "emit_span",
        lambda name, start_s, end_s, parent, **more: spans.append((name, end_s - start_s, parent, more)),
    )
    parent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    bus, clock = FakeBus(), ManualClock(100.0)
    app = shell.App(Processor(config(), PAYLOAD), bus, BlobStore(tmp_path), clock)
    story = [*execution("g000001", 0, 1.0, traceparent=parent), *execution("g000001", 1, 0.0, traceparent=parent)]
    for fact in [dispatched("g000001", 2, 3), *story]:
        app.processor.fold(fact)
    await app._act()
    clock.advance(30.0)
    app.processor.fold(opened(5))
    await app._act()
    assert [(name, lasted) for name, lasted, _, _ in spans] == [
        ("trajectory.wait_for_group", 90.0), ("trajectory.build", 0.0),
        ("trajectory.wait_for_group", 90.0), ("trajectory.build", 0.0),
        ("trajectory.wait_for_batch", 30.0), ("trajectory.wait_for_batch", 30.0),
    ]  # fmt: skip
    assert {parent for _, _, parent, _ in spans} == {parent}
    assert spans[-1][3]["gyre_policy_age_steps"] == 2
    assert isinstance(bus.published[-1], r.BatchClosed)


def test_the_state_of_the_pool_is_what_was_folded():
    """C9: ready, unfinished, the oldest one's age, drops by reason."""
    processor = Processor(config(), PAYLOAD)
    for fact in [
        started(), dispatched("g000001", 2, 1), *execution("g000001", 0), *execution("g000001", 1, 0.0), dispatched("g000002", 2, 2),
        r.StepUpdated(step=3, version=4, burst=3, sample_ids=[], micro_cells={}, metrics={}, opened_at_s=0.0, at_s=20.0),
    ]:  # fmt: skip
        processor.fold(fact)
    state = state_of(processor)
    assert (state.step, state.batch_open, state.ready_groups, state.unfinished_groups) == (4, False, 1, 1)
    assert (state.oldest_ready_age_steps, state.turns_target, dict(state.dropped)) == (3, 2, {})


def test_the_core_reads_no_clock_and_opens_no_connection():
    """Style: time and randomness are passed in."""
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & FORBIDDEN, f"{path.name} imports {names}"


async def test_a_missing_record_is_said_once_and_not_folded_before_it_comes_round(tmp_path):
    """B1: two ticks before the fact is on the stream say it once; the group is judged when it has come."""
    bus, clock = FakeBus(), ManualClock(100.0)
    app = shell.App(Processor(config(), PAYLOAD), bus, BlobStore(tmp_path), clock)
    for fact in [
        dispatched("g000001", 1),
        *execution("g000001", 0, 1.0, turns=2)[:2],
        ended("g000001", 0, 1.0, turns=2),
    ]:
        app.processor.fold(fact)
    await app._give_up_records()
    await app._give_up_records()
    (fact,) = bus.published
    assert fact.reason == "missing" and app.processor.unfinished and not app.processor.ready
    app.processor.fold(fact)
    await app._act()
    await app._give_up_records()
    assert [type(record).__name__ for record in bus.published] == ["CallSetAside", "SampleReady"]


async def test_blobs_go_when_their_step_is_done_and_not_while_the_past_is_folded(tmp_path, monkeypatch):
    """Steps 1 and 2 are of the past: there may be blobs of a later one. At the update of step 3 all that was stored is of steps that are done."""
    blobs = BlobStore(tmp_path)
    there = []
    clear = blobs.clear
    monkeypatch.setattr(blobs, "clear", lambda: there.append(clear()))
    blobs.put(b"rows")

    class Past:
        def __init__(self, _bus, _after) -> None: ...

        async def follow(self):
            for step, is_present in [(1, False), (2, False), (3, True)]:
                yield (
                    r.StepUpdated(
                        step=step, version=step + 1, burst=step, sample_ids=[], micro_cells={}, metrics={}, opened_at_s=2000.0 + 1000 * step,
                        at_s=0.0,
                    ),
                    step,
                    is_present,
                )  # fmt: skip

    monkeypatch.setattr(shell, "Facts", Past)
    await shell.App(Processor(config(), PAYLOAD), FakeBus(), blobs, ManualClock(9e3)).follow()
    assert there == [1]
