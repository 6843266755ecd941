"""Spans from real exporters of two processes become one trace in the ledger."""

import asyncio
import json
import os
import sys

from gyre.api.ledger.v1 import ledger_pb2
from tests.integration.ledger.test_ledger_service import Asking
from tests.support import ROOT, TestRun

WORKER = """
import sys
from pathlib import Path
from gyre import telemetry
from gyre.run_folder import RunFolder
folder = RunFolder(Path(sys.argv[1]))
telemetry.setup(sys.argv[2], folder, folder.config()[0])
given = sys.argv[3] if len(sys.argv) > 3 else ""
if given:
    telemetry.emit_span("gen_ai.chat", 103.0, 104.0, given, gyre_execution="g000000-e0", gen_ai_request_model="policy")
else:
    with telemetry.span("rpc.work"):
        pass
    print(telemetry.emit_span("gyre.queue", 100.0, 102.0, links=["00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"], gyre_attempt=1))
telemetry.shutdown()
"""


async def worker(run: TestRun, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, str(run.folder.root), *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode().strip()


async def test_two_processes_share_one_trace(tmp_path):
    """Tracing: queue from 100 to 102 in one process, its child from 103 to 104 in another: 1 of 4 seconds unaccounted for."""
    async with TestRun(tmp_path, {"ledger": {"traces": True}}) as run, Asking(run) as ledger:
        await run.start("services.ledger", endpoint="ledger")
        parent = await worker(run, "scheduler")
        await worker(run, "gateway", parent)
        trace_id = parent.split("-")[1]

        async def are_stored() -> bool:
            return (await ledger.stub.GetIntake(ledger_pb2.GetIntakeRequest())).spans == 3

        await run.until(are_stored)
        page = json.loads((await ledger.stub.GetTrace(ledger_pb2.GetTraceRequest(id=trace_id))).json)
    first, second = page["spans"]
    assert (first["name"], first["service"], second["name"], second["service"]) == (
        "gyre.queue", "gyre.scheduler", "gen_ai.chat", "gyre.gateway",
    )  # fmt: skip
    assert second["parent_id"] == first["span_id"]
    assert first["links"] == [["ab" * 16, "cd" * 8]]
    assert second["attributes"] == {"gyre.execution": "g000000-e0", "gen_ai.request_model": "policy"}
    assert (page["total_s"], page["unaccounted_s"]) == (4.0, 1.0)


FOREIGN = """
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
for compression in (Compression.NoCompression, Compression.Gzip):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(compression=compression)))
    with provider.get_tracer("foreign").start_as_current_span("outer"), provider.get_tracer("foreign").start_as_current_span("inner"):
        pass
    provider.shutdown()
"""


async def test_a_foreign_exporter_sends_by_http_with_what_its_environment_says(tmp_path):
    """OpenTelemetry's own, set up by its variables alone, as docs/tracing.md has them; without the key nothing is stored."""
    async with TestRun(tmp_path) as run, Asking(run) as ledger:
        await run.start("services.ledger", endpoint="ledger")
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{run.folder.endpoint('otlp')}", "OTEL_SERVICE_NAME": "foreign",
            "OTEL_RESOURCE_ATTRIBUTES": "gyre.run=t",
        }  # fmt: skip
        key = {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{run.service_key}"}
        for added, stored in (({}, 0), (key, 4)):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", FOREIGN, env={**os.environ, **variables, **added}, stderr=asyncio.subprocess.PIPE
            )
            _, said = await process.communicate()
            assert process.returncode == 0 and (b"401" in said or b"nauthorized" in said) == (not added), said
            assert (await ledger.stub.GetIntake(ledger_pb2.GetIntakeRequest())).spans == stored
