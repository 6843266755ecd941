"""Both clients against real servers that misbehave (B4): each way to fail is a failed try, none is a zero, none takes memory or time for long."""

import asyncio
import resource

import pytest
from aiohttp import web

from gyre.bus.server import free_port
from gyre.clock import SystemClock
from gyre.config import EvaluatorConfig
from gyre.evaluation import Execution, serve_async
from services.trajproc.evaluators.clients import open_client
from services.trajproc.evaluators.tries import Answer, ask_within_budget
from tests.integration.trajproc.moody import moody

EXECUTION = Execution(
    sample_id="g000001-e0-a1",
    execution_id="g000001-e0",
    group_id="g000001",
    attempt=1,
    task_type="repair",
    ending="completed",
)


async def asked(settings: EvaluatorConfig, token: str = "") -> Answer:
    client = open_client(settings, token)
    try:
        return await ask_within_budget(lambda: client.ask(EXECUTION), settings, SystemClock(), secret=token)
    finally:
        await client.close()


class HttpServer:
    """POST /<mood>; counts what it was asked and the bytes of the large answer that anybody took."""

    def __init__(self) -> None:
        self.asked, self.sent_bytes, self.headers = 0, 0, None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        self.headers = request.headers
        await request.read()
        match request.match_info["mood"]:
            case "third" if self.asked < 3:
                return web.Response(status=500, text="loading")
            case "hang":
                await asyncio.sleep(600)
            case "large":
                return await self._large(request)
            case "rubbish":
                return web.Response(text="<html>Welcome</html>")
            case "nan":
                return web.Response(text='{"score": NaN}')
            case "refuse":
                return web.Response(status=401, text=f"bad {request.headers.get('authorization', '')}")
            case "elsewhere":
                raise web.HTTPFound("/fine")
        return web.json_response({"score": 0.75, "evidence": {"model": "v3"}, "looked_at": ["text"]})

    async def _large(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1600):
            await response.write(b"x" * 65536)
            self.sent_bytes += 65536
        return response

    async def __aenter__(self) -> "HttpServer":
        app = web.Application()
        app.router.add_post("/{mood}", self.answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def settings(self, mood: str, **more) -> EvaluatorConfig:
        fields = {"timeout_s": 60.0, "tries": 1, **more}
        return EvaluatorConfig(name="taste", kind="learned", url=f"http://127.0.0.1:{self.port}/{mood}", **fields)


async def test_an_http_evaluator_that_fails_twice_is_asked_a_third_time():
    """B4: pauses of .5 and 1 s; the third answer counts, with its evidence."""
    async with HttpServer() as server:
        answer = await asked(server.settings("third", tries=5))
    assert (answer.tries, answer.finding.score, answer.finding.evidence) == (3, 0.75, {"model": "v3"})


@pytest.mark.parametrize(
    ("mood", "said"),
    [
        ("hang", "no answer within 0.3 s"), ("large", "more than 65536 bytes"), ("rubbish", "not an answer"), ("nan", "not an answer"),
        ("elsewhere", "status 302"),
    ],
)  # fmt: skip
async def test_http_misbehaviour_is_a_failed_try(mood, said):
    """B4: of 100 MB no more is taken than fills buffers on the way; a redirect, which could lead anywhere, is not followed."""
    async with HttpServer() as server:
        answer = await asked(server.settings(mood, timeout_s=0.3 if mood == "hang" else 60.0))
        assert answer.finding is None and said in answer.detail
        assert server.sent_bytes < 20_000_000 and (server.asked == 1 or mood == "hang")


async def test_the_token_is_sent_and_never_told():
    """E: the server sends it back in its error; what would be booked has it not."""
    async with HttpServer() as server:
        answer = await asked(server.settings("refuse"), token="s3cret")
        assert server.headers["authorization"] == "Bearer s3cret"
    assert answer.detail == "status 401: bad Bearer [token]"


async def test_nobody_listening_is_a_failed_try_within_the_budget():
    settings = EvaluatorConfig(
        name="taste", kind="rule", url=f"http://127.0.0.1:{free_port()}/", tries=2, timeout_s=30.0
    )
    answer = await asked(settings)
    assert answer.finding is None and answer.tries == 2


@pytest.mark.parametrize(
    ("mood", "said"),
    [("hang", "no answer within|DEADLINE"), ("large", "RESOURCE_EXHAUSTED"), ("rubbish", "no JSON"), ("nan", "number from 0 to 1"),
     ("raise", "UNKNOWN")],
)  # fmt: skip
async def test_grpc_misbehaviour_of_a_real_process_is_a_failed_try(mood, said):
    """B4: the transport refuses 100 MB before it is read; an exception there is an error status here."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timeout_s = 0.3 if mood == "hang" else 60.0
    async with moody(mood) as (_, port):
        answer = await asked(
            EvaluatorConfig(
                name="mine", kind="rule", transport="grpc", address=f"127.0.0.1:{port}", tries=1, timeout_s=timeout_s, budget_s=90.0
            )
        )  # fmt: skip
    assert answer.finding is None
    assert any(word in answer.detail for word in said.split("|")), answer.detail
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "kilobytes"


async def test_a_grpc_evaluator_that_dies_and_comes_back_is_found_again():
    """B4: killed between two tries; the one that takes its port answers."""
    async with moody("raise") as (process, port):
        settings = EvaluatorConfig(
            name="mine", kind="rule", transport="grpc", address=f"127.0.0.1:{port}", tries=100, timeout_s=30.0, budget_s=90.0
        )  # fmt: skip
        question = asyncio.create_task(asked(settings))
        assert await process.stdout.readline() == b"raise\n", "asked once"
        process.kill()
        await process.wait()
    server = await serve_async(lambda execution: 0.25, f"127.0.0.1:{port}")
    answer = await question
    await server.stop()
    assert answer.finding.score == 0.25 and answer.tries > 1


async def test_a_served_function_may_be_plain_or_async_and_what_it_raises_is_no_zero():
    """D4: gyre.evaluation.serve in a few lines; a token where one is set."""

    async def slow(execution: Execution) -> float:
        return 0.5 if execution.sample_id == EXECUTION.sample_id else 0.0

    def broken(execution: Execution) -> float:
        raise ValueError("no such file")

    for evaluator, score, detail in (
        (slow, 0.5, ""),
        (lambda execution: True, 1.0, ""),
        (broken, None, "ValueError: no such file"),
    ):
        server = await serve_async(evaluator, "127.0.0.1:0", token="s3cret")
        settings = EvaluatorConfig(
            name="mine", kind="rule", transport="grpc", address=f"127.0.0.1:{server.port}", tries=1
        )
        answer, stranger = await asked(settings, "s3cret"), await asked(settings, "wrong")
        await server.stop()
        assert (answer.finding.score if answer.finding else None) == score and detail in answer.detail
        assert "UNAUTHENTICATED" in stranger.detail
