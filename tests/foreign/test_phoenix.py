"""Traces and strangers (E): a foreign backend receives what the ledger receives, and the ledger takes what a foreign client sends."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

from gyre.api.ledger.v1 import ledger_pb2
from gyre.bus.server import free_port
from tests.integration.ledger.test_ledger_service import Asking
from tests.integration.ledger.test_otlp import worker
from tests.support import TestRun, until

pytestmark = pytest.mark.foreign

CLIENT = """
import sys
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
provider = TracerProvider(resource=Resource.create({"service.name": "someone.else"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(
    endpoint="http://" + sys.argv[1], insecure=True, headers=(("authorization", "Bearer " + sys.argv[2]),))))
with provider.get_tracer("theirs").start_as_current_span("theirs", attributes={"n": 1, "list": ["a", "b"]}) as span:
    print(format(span.get_span_context().trace_id, "032x"))
provider.shutdown()
"""


@contextlib.asynccontextmanager
async def phoenix(foreign: Path, folder: Path) -> AsyncIterator[tuple[str, str]]:
    """arize-phoenix as its users start it; its web address and where it takes OTLP."""
    http, grpc = free_port(), free_port()
    told = {
        "PORT": str(http),
        "GRPC_PORT": str(grpc),
        "HOST": "127.0.0.1",
        "WORKING_DIR": str(folder),
        "TELEMETRY_ENABLED": "false",
    }
    environment = {**os.environ, **{f"PHOENIX_{name}": value for name, value in told.items()}}
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            foreign / "phoenix", "serve", env=environment, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{http}"

    async def is_up() -> bool:
        assert process.returncode is None, (folder / "log").read_text()[-2000:]
        with contextlib.suppress(ClientError, TimeoutError):
            async with ClientSession() as session, session.get(f"{url}/healthz") as response:
                return response.status == 200
        return False

    try:
        await until(is_up, 180.0)
        yield url, f"127.0.0.1:{grpc}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def spans_of(url: str, trace_id: str) -> list[dict]:
    """What phoenix has of one trace, in OTLP's own form, oldest first."""
    async with ClientSession() as session, session.get(f"{url}/v1/projects/default/spans/otlpv1") as response:
        found = (await response.json())["data"]
    mine = [span for span in found if _hex(span["trace_id"]) == trace_id]
    return sorted(mine, key=lambda span: int(span["start_time_unix_nano"]))


def _hex(text: str) -> str:
    """Ids as JSON has them: hexadecimal, or base64 as protobuf writes bytes."""
    return text.lower() if len(text) in (16, 32) else base64.b64decode(text).hex()


async def test_a_foreign_backend_receives_the_same_trace_as_the_ledger(foreign, tmp_path):
    """Two of our processes, one trace: phoenix, configured as `ledger.otlp_endpoint`, has the spans that the ledger has, with the same ids, parents,
    times and attributes."""
    home = tmp_path / "phoenix"
    home.mkdir()
    async with phoenix(foreign, home) as (url, otlp):
        settings = {"ledger": {"traces": True, "otlp_endpoint": otlp}}
        async with TestRun(tmp_path / "run", settings) as run, Asking(run) as ledger:
            await run.start("services.ledger", endpoint="ledger")
            parent = await worker(run, "scheduler")
            await worker(run, "gateway", parent)
            trace_id = parent.split("-")[1]
            page = json.loads((await ledger.stub.GetTrace(ledger_pb2.GetTraceRequest(id=trace_id))).json)

            async def both() -> list[dict]:
                found = await spans_of(url, trace_id)
                return found if len(found) == len(page["spans"]) else []

            theirs = await until(both)
    assert [
        (span["name"], _hex(span["span_id"]), int(span["start_time_unix_nano"]), int(span["end_time_unix_nano"]))
        for span in theirs
    ] == [(span["name"], span["span_id"], span["start_ns"], span["end_ns"]) for span in page["spans"]]
    assert _hex(theirs[1]["parent_span_id"]) == page["spans"][0]["span_id"]
    named = {one["key"] for one in theirs[1]["attributes"]}
    assert set(page["spans"][1]["attributes"]) <= named


async def test_a_foreign_clients_spans_are_accepted_with_the_runs_key_only(foreign, tmp_path):
    """An OpenTelemetry of another installation sends to the ledger: stored with its attributes; with a wrong key nothing is."""
    async with TestRun(tmp_path, {"ledger": {"traces": True}}) as run, Asking(run) as ledger:
        await run.start("services.ledger", endpoint="ledger")
        trace_id = await sent(foreign, run, run.service_key)
        await sent(foreign, run, "wrong")
        page = json.loads((await ledger.stub.GetTrace(ledger_pb2.GetTraceRequest(id=trace_id))).json)
        spans = (await ledger.stub.GetIntake(ledger_pb2.GetIntakeRequest())).spans
    (span,) = page["spans"]
    assert (span["name"], span["service"], span["attributes"]) == (
        "theirs",
        "someone.else",
        {"n": 1, "list": ["a", "b"]},
    )
    assert spans == 1


async def sent(foreign: Path, run: TestRun, key: str) -> str:
    process = await asyncio.create_subprocess_exec(
        foreign / "python", "-c", CLIENT, run.folder.endpoint("ledger"), key, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.decode().strip()
