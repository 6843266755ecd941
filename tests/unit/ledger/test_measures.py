"""Dashboards (E): the facts' measurements, at a Prometheus endpoint."""

import asyncio
import json
import re
import threading
from math import isfinite

import msgspec
import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from gyre import records as r
from gyre.errors import Unavailable
from services.ledger.core.bounded import OTHER, PAIRS_MAX, VALUES_MAX
from services.ledger.core.measures import INSTRUMENTS, measured
from services.ledger.core.rows import FACT_TYPES
from services.ledger.metrics import Metrics, MetricsServer
from tests.support import ROOT
from tests.unit.ledger.ledger_history import history


def shown(metrics: Metrics) -> dict[str, dict[tuple, float]]:
    """Sample name → labels → value, as Prometheus reads the page."""
    found: dict[str, dict[tuple, float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def total(page, name: str) -> float:
    return sum(page[name].values())


@pytest.fixture(scope="module")
def page():
    metrics = Metrics("r")
    for fact in history():
        metrics.see(fact)
    yield shown(metrics)
    metrics.close()


def test_each_measurement_has_its_instrument_with_a_finite_value():
    for fact in history():
        for name, value, labels in measured(fact):
            assert name in INSTRUMENTS and isfinite(value) and all(isinstance(label, str) for label in labels.values())


def test_the_page_says_what_the_facts_say(page):
    """Counters are the facts' sums; a histogram counts each fact; gauges are the newest fact's."""
    facts = history()
    of = {kind: [fact for fact in facts if type(fact) is kind] for kind in FACT_TYPES}
    assert total(page, "gyre_executions_total") == len(of[r.ExecutionEnded])
    assert total(page, "gyre_turns_total") == sum(fact.turns for fact in of[r.ExecutionEnded])
    assert total(page, "gyre_occupancy_seconds_total") == sum(fact.occupancy_s for fact in of[r.ExecutionEnded])
    assert total(page, "gyre_samples_trained_total") == sum(len(fact.sample_ids) for fact in of[r.StepUpdated])
    assert total(page, "gyre_queue_wait_seconds_count") == len(of[r.GroupDispatched])
    assert total(page, "gyre_batch_staleness_mean") == of[r.BatchClosed][-1].staleness_mean
    dropped = page["gyre_samples_dropped_total"]
    for reason in {fact.reason for fact in of[r.SampleDropped]}:
        counted = sum(value for labels, value in dropped.items() if ("reason", reason) in labels)
        assert counted == sum(fact.reason == reason for fact in of[r.SampleDropped])


def test_what_the_trainer_measured_stands_under_its_name_and_what_is_no_number_is_counted(page):
    """The history's last step has a loss of NaN: the gauge keeps the last number, and a counter says that it is not the newest."""
    losses = [fact.metrics["loss"] for fact in history() if isinstance(fact, r.StepUpdated)]
    assert not isfinite(losses[-1])
    assert page["gyre_step_metric"][(("metric", "loss"),)] == [loss for loss in losses if isfinite(loss)][-1]
    assert total(page, "gyre_step_not_finite_total") == sum(not isfinite(loss) for loss in losses)


def test_the_dashboard_asks_for_what_there_is():
    """deploy/grafana: every name in its queries is one that the endpoint shows."""
    ends = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    there = {
        name.replace(".", "_") + ("_seconds" if one.unit == "s" else "") + end
        for name, one in INSTRUMENTS.items() for end in ends[one.kind]
    }  # fmt: skip
    dashboard = json.loads((ROOT / "deploy/grafana/gyre.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bgyre_\w+", target["expr"])
    }
    assert len(asked) > 20 and asked <= there


def test_a_fact_that_cannot_be_measured_breaks_nothing():
    """A step that has no time: said in the log, and the next fact is measured."""
    metrics = Metrics("r")
    step = next(fact for fact in history() if isinstance(fact, r.StepUpdated))
    metrics.see(msgspec.structs.replace(step, at_s=None))
    metrics.see(step)
    assert total(shown(metrics), "gyre_step_duration_seconds_count") == 1
    metrics.close()


def test_task_types_that_everybody_invents_are_other_beyond_a_bound():
    """E: a type for each task must not make the page, and the ledger, grow for ever. Nothing is lost of the sums."""
    metrics = Metrics("r")
    ended = next(fact for fact in history() if isinstance(fact, r.ExecutionEnded))
    for number in range(1000):
        for kind in ("task_type", "tenant"):
            metrics.see(msgspec.structs.replace(ended, **{kind: f"{kind}-{number}"}))
    page = shown(metrics)
    metrics.close()
    own = {name: {dict(labels)[name] for labels in page["gyre_executions_total"]} for name in ("task_type", "tenant")}
    assert all(len(values) <= VALUES_MAX[name] + 1 and {OTHER, f"{name}-0"} <= values for name, values in own.items())
    assert len(page["gyre_executions_total"]) <= PAIRS_MAX + 1 and total(page, "gyre_executions_total") == 2000


async def test_a_page_is_written_beside_the_event_loop(monkeypatch):
    """E: facts come in meanwhile. The page's writer waits here for something that the loop does."""
    metrics, server_is_free = Metrics("r"), threading.Event()
    monkeypatch.setattr(metrics, "text", lambda: b"free" if server_is_free.wait(20) else b"blocked")
    server = MetricsServer(metrics)
    address = await server.start("127.0.0.1:0")
    try:
        async with ClientSession() as session:
            asked = asyncio.ensure_future(session.get(f"http://{address}/metrics"))
            async with session.get(f"http://{address}/else") as response:
                assert response.status == 404
            server_is_free.set()
            assert await (await asked).text() == "free"
    finally:
        await server.stop()
        metrics.close()


async def test_a_scraper_reads_it_over_http_and_a_taken_port_is_said():
    metrics = Metrics("r")
    for fact in history():
        metrics.see(fact)
    server, second = MetricsServer(metrics), MetricsServer(metrics)
    address = await server.start("127.0.0.1:0")
    try:
        async with ClientSession() as session, session.get(f"http://{address}/metrics") as response:
            assert response.status == 200 and response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            names = {family.name for family in text_string_to_metric_families(await response.text())}
        with pytest.raises(Unavailable, match=r"ledger\.metrics"):
            await second.start(address)
    finally:
        await server.stop()
        metrics.close()
    assert {"gyre_steps", "gyre_samples_dropped", "gyre_step_duration_seconds", "target_info"} <= names
