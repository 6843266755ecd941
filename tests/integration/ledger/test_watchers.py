"""Whoever is told each fact beside the books (E): a Prometheus that asks the running ledger, and TensorBoard's files."""

import struct
from collections import defaultdict
from pathlib import Path

from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families
from tensorboardX.proto.event_pb2 import Event

from gyre import records as r
from gyre.bus.server import free_port
from tests.integration.ledger.test_ledger_service import SETTINGS, Asking, speak
from tests.support import TestRun
from tests.unit.ledger.ledger_history import history


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Tag → step → value of the event files: records of a length (8 bytes), its checksum (4), the event, its checksum (4)."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for file in folder.glob("events.out.tfevents.*"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            for value in event.summary.value:
                found[value.tag][event.step] = value.simple_value
            at += 16 + length
    return found


async def counted(url: str, name: str) -> float:
    async with ClientSession() as session, session.get(url) as response:
        families = text_string_to_metric_families(await response.text())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


async def test_facts_that_come_twice_are_measured_once_and_every_step_reaches_tensorboard(tmp_path):
    """The whole history is said twice: the bus and the books let each fact through once, and the counter says what the books say.
    At the ledger's ordinary end the event files hold every step's staleness and loss."""
    port = free_port()
    watched = {"metrics": f"127.0.0.1:{port}", "sinks": ["tensorboard"], "traces": False}
    facts = history()
    updates = [fact for fact in facts if isinstance(fact, r.StepUpdated)]
    closed = {fact.step: fact for fact in facts if isinstance(fact, r.BatchClosed)}
    async with TestRun(tmp_path, {**SETTINGS, "ledger": watched}) as run, Asking(run) as ledger:
        process = await run.start("services.ledger", endpoint="ledger")
        await speak(run, facts)
        await ledger.intake(await speak(run, facts))
        url = f"http://127.0.0.1:{port}/metrics"
        # the books are durable a moment before their watchers are told
        await run.until(lambda: _is(counted(url, "gyre_steps_total"), len(updates)))
        assert await counted(url, "gyre_samples_trained_total") == sum(len(fact.sample_ids) for fact in updates)
        process.terminate()
        assert await process.wait() == 0
    found = scalars(tmp_path / "tensorboard")
    assert set(found["train/loss"]) == {fact.step for fact in updates}
    assert {step: value for step, value in found["batch/staleness_mean"].items()} == {
        fact.step: closed[fact.step].staleness_mean for fact in updates
    }


async def _is(value, wanted: float) -> bool:
    return await value == wanted
