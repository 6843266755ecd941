"""Processes that flood the gateway cost only themselves (B4): rubbish ends their own stream, and everybody else's executions run their course."""

import pytest

from gyre.api.rollout.v1 import environments_pb2 as pb
from services.rollout.gateway.environments import REFUSED_LOGGED_MAX, REFUSED_MAX

from .test_foreign_clients import MB, ended

pytestmark = pytest.mark.asyncio(loop_scope="package")

FLOOD = 100_000
"""Messages that lie in wait at the flooding client: far beyond what the gateway will read of them."""


async def test_a_flood_of_lies_ends_its_own_stream_and_nothing_else(system):
    """Beginnings and endings of executions that are others' or nobody's. After REFUSED_MAX of them the stream is over; the log has the first ones
    only; the execution that was lied about goes on, and so does the liar's next stream."""
    honest, liar = await system.attach(), await system.attach()
    execution, _, attempt = await system.begin(honest)
    before, logged = system.memory_bytes(), system.log("services.rollout").count("refused started of")
    for index in range(FLOOD):
        name = execution if index % 2 else f"g9{index:05d}-e0"
        liar._outgoing.put_nowait(
            pb.AttachRequest(request_id=f"{index}", execution_id=name, attempt=attempt, started=pb.Started())
        )
    await system.run.until(liar.broken.is_set)
    assert liar._outgoing.qsize() > FLOOD / 2, "most of it was never read"
    await liar.detach()
    await honest.say(execution, attempt, ended=ended())
    ending = await system.ending(execution)
    assert (ending.ending, ending.attempt, ending.evaluation.outcome) == ("completed", 1, 1.0)
    assert system.memory_bytes() < before + 50 * MB
    log = system.log("services.rollout")
    assert f"{REFUSED_MAX} messages were refused" in log
    assert log.count("refused started of") - logged == REFUSED_LOGGED_MAX
    await liar.attach()
    again, _, attempt = await system.begin(liar)
    await liar.say(again, attempt, ended=ended())
    assert (await system.ending(again)).evaluation.outcome == 1.0
    await honest.detach()
    await liar.detach()
