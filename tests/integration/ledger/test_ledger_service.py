"""The ledger as a process, on a real nats-server: nothing lost by kill -9, nothing counted twice, poison set aside, questions answered."""

import asyncio
import json
import subprocess
import sys
from typing import Any

import grpc
import pytest

from gyre.api.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from gyre.bus.access import SPEAKS
from gyre.bus.subjects import subject_of
from gyre.rpc import open_channel
from tests.integration.ledger.command import gyre
from tests.support import ROOT, WAIT_S, TestRun
from tests.unit.ledger.ledger_history import RUN, call, config, history

SETTINGS = {"run": {"name": RUN}, "trajproc": {"turns_per_step": 4}}
SPEAKERS = {kind.__name__: service for service, kinds in reversed(SPEAKS.items()) for kind in kinds}
"""Who may say it; the first named where several may."""


async def speak(run: TestRun, facts) -> int:
    """Publish each fact under the identity that may say it; returns the newest sequence."""
    buses = {}
    newest = 0
    for fact in facts:
        identity = SPEAKERS[type(fact).__name__]
        if identity not in buses:
            buses[identity] = await run.bus(identity)
        newest = max(newest, await buses[identity].publish(fact))
    return newest


class Asking:
    """A client of the ledger that outlives its restarts."""

    def __init__(self, run: TestRun, key: str | None = None) -> None:
        self._channel = open_channel(run.folder.endpoint("ledger"), run.service_key if key is None else key)
        self.stub = ledger_pb2_grpc.LedgerServiceStub(self._channel)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._channel.close()

    async def intake(self, sequence: int, timeout_s: float = WAIT_S):
        """Wait until everything up to `sequence` is stored."""
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    found = await self.stub.GetIntake(ledger_pb2.GetIntakeRequest(), wait_for_ready=True)
                    if found.stream_sequence >= sequence:
                        return found
                except grpc.aio.AioRpcError:
                    pass
                await asyncio.sleep(0.1)


async def test_kill_9_under_load_loses_nothing_and_counts_nothing_twice(tmp_path):
    """C6: the intake is killed twice while 1,500 call records arrive; each is in the books exactly once."""
    calls = [call(index, member, number) for index in range(30) for member in range(2) for number in range(25)]
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        gateway = await run.bus("gateway")

        async def publish_all() -> int:
            newest = 0
            for start in range(0, len(calls), 50):
                newest = max(newest, *await asyncio.gather(*map(gateway.publish, calls[start : start + 50])))
                await asyncio.sleep(0.1)
            return newest

        publishing = asyncio.ensure_future(publish_all())
        for _ in range(2):
            process = await run.start("services.ledger", endpoint="ledger")
            await asyncio.sleep(0.4)
            process.kill()
            await process.wait()
        await run.start("services.ledger", endpoint="ledger")
        found = await ledger.intake(await publishing)
        books = json.loads((await ledger.stub.GetBooks(ledger_pb2.GetBooksRequest())).json)
    assert found.facts == len(calls)
    assert books["books"]["turns"] == len(calls)


async def test_a_whole_run_is_audited_explained_and_asked_again_when_it_is_over(tmp_path):
    """C14, C11: over RPC while the bus is up; by `--print` and by `--offline` when it is gone. Poison is set aside and counted."""
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        process = await run.start("services.ledger", endpoint="ledger")
        newest = await speak(run, history()[:-1])
        gateway = await run.bus("gateway")
        poison = await gateway.js.publish(subject_of(RUN, call(8, 0, 0)), b"\xc1 not a record")
        found = await ledger.intake(max(newest, poison.seq))
        assert found.poison == 1

        async def has_its_own_alarm() -> bool:
            """About the poison: a fact like others, which comes to the ledger a moment later."""
            return (await ledger.stub.GetIntake(ledger_pb2.GetIntakeRequest())).facts == len(history()[:-1]) + 1

        await run.until(has_its_own_alarm)
        verdict = await ledger.stub.Audit(ledger_pb2.AuditRequest())
        assert verdict.passed, verdict
        page = json.loads((await ledger.stub.Explain(ledger_pb2.ExplainRequest(sample_id="g000001-e1-a2"))).json)
        assert page["state"] == "trained"
        bill = json.loads((await ledger.stub.GetBill(ledger_pb2.GetBillRequest(by=["tenant", "attempt"]))).json)
        books = json.loads((await ledger.stub.GetBooks(ledger_pb2.GetBooksRequest())).json)["books"]
        assert [(row["attempt"], row["turns"], row["retry_attempts"]) for row in bill["rows"]] == [
            (1, 14, 1),
            (2, 2, 0),
        ]
        assert all(
            bill["total"][name] == books[name] for name in ("turns", "tokens_sampled", "occupancy_s", "external_calls")
        )
        with pytest.raises(grpc.aio.AioRpcError, match="no bill by colour") as refusal:
            await ledger.stub.GetBill(ledger_pb2.GetBillRequest(by=["colour"]))
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        shown = await asyncio.to_thread(gyre, "bill", "--run", str(run.folder.root), "--by", "tenant,attempt", "--json")
        assert json.loads(shown) == bill
        with pytest.raises(grpc.aio.AioRpcError, match="near it: g000000-e0-a1") as refusal:
            await ledger.stub.Explain(ledger_pb2.ExplainRequest(sample_id="g000000-e0-a7"))
        assert refusal.value.code() is grpc.StatusCode.NOT_FOUND
        async with Asking(run, key="wrong") as stranger:
            with pytest.raises(grpc.aio.AioRpcError, match="wrong or missing key"):
                await stranger.stub.GetDrops(ledger_pb2.GetDropsRequest())
        folder = tmp_path / "exported"
        told = await asyncio.to_thread(
            gyre, "export", str(folder), "--run", str(run.folder.root), "--what", "turns,drops", "--json"
        )
        assert {name: about["rows"] for name, about in json.loads(told).items()} == {"turns": 16, "drops": 5}
        assert sorted(file.name for file in folder.iterdir()) == ["config.toml", "drops.parquet", "turns.parquet"]
        words = (await asyncio.to_thread(gyre, "audit", "--run", run.folder.root)).splitlines()[-1]
        assert words == "Facts that wait on the bus for the books: 0. Messages that cannot be stored, set aside: 1."
        process.terminate()
        assert await process.wait() == 0
        await run.nats.stop()

        printed = await printing(run, "audit")
        assert printed["passed"] and "intake" not in printed
        assert gyre("audit", "--run", run.folder.root).splitlines()[-1].startswith("The run is over")
        assert [one["name"] for one in printed["criteria"]] == [one.name for one in verdict.criteria]
        assert await printing(run, "bill", "tenant", "attempt") == bill
        shown = gyre("bill", "--run", str(run.folder.root), "--by", "tenant,attempt").splitlines()
        assert shown[0].split()[:4] == ["tenant", "attempt", "executions", "attempts"] and len(shown) == 4
        assert (await printing(run, "drops"))["line"]["age_steps_max"] == config().trajproc.age_steps_max
        await run.start("services.ledger", "--offline", endpoint="ledger")
        again = await ledger.stub.Audit(ledger_pb2.AuditRequest(), wait_for_ready=True)
        assert again == verdict


async def printing(run: TestRun, question: str, *names: str, **page: Any):
    """What a ledger process of its own answers; `page`: after and limit."""
    command = [sys.executable, "-m", "services.ledger", "--run", str(run.folder.root), f"--print={question}"]
    command += [f"--name={name}" for name in names] + [f"--{name}={value}" for name, value in page.items()]
    done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
