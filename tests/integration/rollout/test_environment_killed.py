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
async def served(gateway: GatewayDouble, state: Path, environment: str = "logbook"):
    server = await serve_double(gateway)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"tests.integration.rollout.{environment}", "--address", f"127.0.0.1:{server.port}", "--state", str(state), cwd=ROOT
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


async def test_a_harness_goes_on_from_its_snapshot_after_kill_9(tmp_path):
    """Killed in its fifth call, its newest snapshot taken before the fourth: attempt 2, in another process, starts the harness by its own way to go
    on, in the same place, with its home and its working folder as they were then. What came after is done again, and on record as lost."""
    hanging = asyncio.Event()

    async def tell(body, _):
        n = said(body) + 1
        if n == 5 and not hanging.is_set():
            hanging.set()
            await asyncio.sleep(600)
        return {"role": "assistant", "content": f"do echo {n} $PWD >> log" if n <= 6 else "Done."}

    def said(body) -> int:
        return sum(message["role"] == "assistant" for message in body["messages"])

    async with ChatDouble(tell) as chat:
        gateway = GatewayDouble(chat.base)
        async with served(gateway, tmp_path / "state", "scribe") as process:
            gateway.assign("g000001-e0", 1)
            first = await asyncio.wait_for(gateway.received.get(), WAIT_S)
            await asyncio.wait_for(hanging.wait(), WAIT_S)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        of_first = len(chat.requests)
        async with served(gateway := GatewayDouble(chat.base), tmp_path / "state", "scribe"):
            gateway.assign("g000001-e0", 2)
            started = (await asyncio.wait_for(gateway.received.get(), WAIT_S)).started
            ended = (await asyncio.wait_for(gateway.received.get(), WAIT_S)).ended
    assert not first.started.is_replay and [said(body) for body in chat.requests[:of_first]] == [0, 1, 2, 3, 4]
    assert started.is_replay and started.dependency_snapshot.startswith("snapshot:")
    assert [said(body) for body in chat.requests[of_first:]] == [3, 4, 5, 6]
    assert chat.requests[of_first]["messages"][:7] == chat.requests[3]["messages"], "which the harness had in its notes"
    assert chat.requests[of_first]["messages"][7:] == [{"role": "user", "content": "Go on."}]
    assert (ended.ending, ended.reason, ended.evaluation.outcome) == ("completed", "stopped", 1.0), ended
    kept = json.loads(ended.evaluation.evidence_json)["harness"]["snapshots"]
    assert (ended.rollback_turns, kept["lost_turns"], kept["turns_before"]) == (1, 1, 3) and kept["lost_s"] >= 0
    assert ended.snapshots == kept["taken"] == 3
    assert not list((tmp_path / "state" / "records").iterdir()), "nobody goes on from what has ended"
