"""A served environment is killed in the middle of an execution (C3, C4): a real process of `serve`; doubles of gateway and model."""

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path

from tests.support import ROOT, WAIT_S, until
from tests.unit.env.doubles import ChatDouble, GatewayDouble, serve_double


def act(body, _):
    """Turn n: `write` for odd n, `mail` for even n."""
    n = sum(message["role"] == "assistant" for message in body["messages"]) + 1
    call = {"name": "write" if n % 2 else "mail", "arguments": json.dumps({"n": n})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}]}


@contextlib.asynccontextmanager
async def served(gateway: GatewayDouble, state: Path):
    server = await serve_double(gateway)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.rollout.logbook", "--address", f"127.0.0.1:{server.port}", "--state", str(state), cwd=ROOT
    )  # fmt: skip
    try:
        await asyncio.wait_for(gateway.hellos.get(), WAIT_S)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await server.stop(0)


async def test_an_execution_goes_on_after_kill_9_and_nothing_outside_is_done_twice(tmp_path):
    """Killed in step 5 of six. Attempt 2, in another process, says it is a replay, asks the model for turn 6 only and sends only mail 6."""
    hang, mails, worlds = tmp_path / "hang", tmp_path / "mails", tmp_path / "worlds"
    hang.touch()
    worlds.mkdir()
    payload = json.dumps({"hang": str(hang), "mails": str(mails), "worlds": str(worlds)})
    async with ChatDouble(act) as chat:
        gateway = GatewayDouble(chat.base)
        async with served(gateway, tmp_path / "state") as process:
            gateway.assign("g000001-e0", 1, payload_json=payload, wall_s=600.0)
            first = await asyncio.wait_for(gateway.received.get(), WAIT_S)
            await until(hang.with_suffix(".now").exists)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        hang.unlink()
        assert mails.read_text().split() == ["2", "4"] and len(chat.requests) == 5 and not first.started.is_replay
        async with served(gateway := GatewayDouble(chat.base), tmp_path / "state"):
            gateway.assign("g000001-e0", 2, payload_json=payload, wall_s=600.0)
            started = await asyncio.wait_for(gateway.received.get(), WAIT_S)
            ended = await asyncio.wait_for(gateway.received.get(), WAIT_S)
    assert started.started.is_replay and (ended.execution_id, ended.attempt) == ("g000001-e0", 2)
    assert (ended.ended.ending, ended.ended.reason, ended.ended.evaluation.outcome) == ("completed", "submitted", 1.0)
    assert mails.read_text().split() == ["2", "4", "6"] and len(chat.requests) == 6
    assert ended.ended.snapshots >= 1 and ended.ended.rollback_turns == 0
