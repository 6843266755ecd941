"""What the ledger's process lives through: a full disk, poison among facts, everything twice and out of order. Nothing lost, nothing twice."""

import asyncio
import json
import random
import resource

import grpc
import msgspec
import pytest

from gyre.api.ledger.v1 import ledger_pb2
from gyre.bus import streams
from gyre.bus.subjects import PREFIX, subject_of
from gyre.cli.asking import ask_ledger
from gyre.records import AlarmRaised, encode
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree
from services.trajproc.store import TreeStore
from tests.integration.ledger.test_ledger_service import SETTINGS, SPEAKERS, Asking, gyre, printing, speak
from tests.support import TestRun
from tests.unit.ledger.ledger_history import RUN, call, dispatched, history, leased
from tests.unit.trajproc.builders import call as tree_call
from tests.unit.trajproc.generated import SAMPLE


async def books(ledger: Asking) -> dict:
    return json.loads((await ledger.stub.GetBooks(ledger_pb2.GetBooksRequest())).json)


def alarms(run: TestRun, kind: str) -> list[AlarmRaised]:
    return [fact for fact in run.facts if isinstance(fact, AlarmRaised) and fact.kind == kind]


async def published(bus, facts) -> int:
    """Sequence of the newest."""
    newest = 0
    for start in range(0, len(facts), 50):
        newest = max(newest, *await asyncio.gather(*map(bus.publish, facts[start : start + 50])))
    return newest


PAGE_BYTES = 4096
"""No file of a database can take so much as one page then."""


def set_room(pid: int, file_bytes: int) -> None:
    """How large a file of that process may grow: beyond it the kernel refuses a write as on a full disk."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes, hard))


async def test_a_full_disk_is_an_alarm_and_facts_wait_on_the_bus_until_there_is_room(tmp_path):
    """C6: 1,200 call records while nothing can be written; what is acknowledged is on the disk, and with room again all of it is, once."""
    calls = [call(index, member, number) for index in range(25) for member in range(2) for number in range(25)]
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        run.listen([AlarmRaised])
        process = await run.start("services.ledger", endpoint="ledger")
        gateway = await run.bus("gateway")
        before = await published(gateway, calls[:50])
        await ledger.intake(before)
        set_room(process.pid, PAGE_BYTES)
        newest = await published(gateway, calls[50:])
        await run.until(lambda: alarms(run, "ledger_database"))
        waiting = await ledger.stub.GetIntake(ledger_pb2.GetIntakeRequest())
        assert waiting.stream_sequence < newest, "a fact was acknowledged that is nowhere"
        assert waiting.facts == (await books(ledger))["books"]["turns"], "half a transaction was stored"
        assert (await ask(ledger, "audit"))["intake"]["waiting"] >= newest - waiting.stream_sequence
        set_room(process.pid, resource.RLIM_INFINITY)
        found = await ledger.intake(newest)
        assert (await books(ledger))["books"]["turns"] == len(calls)
        assert found.facts >= len(calls)

        async def all_in() -> bool:
            """The alarm is a fact, too, and comes in a moment later."""
            return (await ask(ledger, "audit"))["intake"] == {"waiting": 0, "set_aside": 0}

        await run.until(all_in)
        assert "does not take writes" in alarms(run, "ledger_database")[0].message
        assert process.returncode is None


async def test_poison_is_set_aside_with_its_bytes_counted_and_said_and_the_rest_goes_on(tmp_path):
    """E: no MessagePack, a record of no type, a known type with wrong fields, nothing at all: each kept as it came, between facts that are stored."""
    poison = [b"\xc1 not a record", b"\x81\xa4type\xa3foo", b"\x81\xa4type\xadcall.recorded", b"\xff" * 40_000]
    calls = [call(index, 0, number) for index in range(5) for number in range(4)]
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        run.listen([AlarmRaised])
        gateway = await run.bus("gateway")
        for place, fact in enumerate(calls):
            if place % 5 == 2:
                await gateway.js.publish(subject_of(RUN, call(90 + place, 0, 0)), poison[place // 5])
            newest = await gateway.publish(fact)
        await run.start("services.ledger", endpoint="ledger")
        found = await ledger.intake(newest)
        assert found.poison == len(poison)
        assert (await ask(ledger, "audit"))["intake"]["set_aside"] == len(poison)
        assert (await books(ledger))["books"]["turns"] == len(calls)
        await run.until(lambda: len(alarms(run, "poison")) == 3)
        said = [alarm.message for alarm in alarms(run, "poison")]
        assert [text.split(" messages")[0] for text in said] == ["1", "2", "4"], "of the first, second and fourth"
        kept = await run.operator.js.stream_info(streams.DEAD)
        stored = [await run.operator.js.get_msg(streams.DEAD, number) for number in range(1, kept.state.messages + 1)]
        assert [one.data for one in stored] == poison
        assert all(
            one.headers["Gyre-Subject"].startswith(f"{PREFIX}.{RUN}.") and one.headers["Gyre-Reason"] for one in stored
        )


async def test_everything_twice_and_out_of_order_makes_the_same_books(tmp_path):
    """C6: a run's facts shuffled, each sent once more without its message id (as by a publisher that lost its answer), against the same in order."""
    facts = history()
    shuffled = random.Random(5).sample(facts, len(facts))
    told = []
    for name, order in (("ordered", facts), ("shuffled", shuffled)):
        root = tmp_path / name
        root.mkdir()
        async with TestRun(root, SETTINGS) as run, Asking(run) as ledger:
            await run.start("services.ledger", endpoint="ledger")
            newest = await speak(run, order)
            if name == "shuffled":
                newest = await again(run, order)
            await ledger.intake(newest)
            told.append(
                [await ask(ledger, question) for question in ("books", "audit", "drops", "bill", "tiers", "doctor")]
            )
            told[-1][1].pop("intake")  # of the moment, not of the books
            found = await ledger.stub.GetIntake(ledger_pb2.GetIntakeRequest())
            assert found.facts == len(facts)
    assert told[0][:5] == told[1][:5]
    assert told[1][1]["passed"]


async def again(run: TestRun, facts) -> int:
    """The same bytes once more, where the server's own de-duplication cannot see it."""
    buses, newest = {}, 0
    for fact in facts:
        identity = SPEAKERS[type(fact).__name__]
        buses[identity] = buses.get(identity) or await run.bus(identity)
        newest = (await buses[identity].js.publish(subject_of(RUN, fact), encode(fact))).seq
    return newest


async def ask(ledger: Asking, question: str):
    return json.loads((await ledger.stub.Ask(ledger_pb2.AskRequest(question=question))).json)


async def test_questions_are_answered_by_name_and_paged_live_and_when_the_run_is_over(tmp_path):
    """E: the same pages by Ask and by `--print`; what is no question is an error that names those there are."""
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        process = await run.start("services.ledger", endpoint="ledger")
        await ledger.intake(await speak(run, history()))
        first = json.loads(
            (await ledger.stub.Ask(ledger_pb2.AskRequest(question="lineage", names=["v1"], limit=3))).json
        )
        request = ledger_pb2.AskRequest(question="lineage", names=["v1"], limit=100, after=first["next"])
        rest = json.loads((await ledger.stub.Ask(request)).json)
        assert (len(first["samples"]), len(rest["samples"]), rest["next"]) == (3, 5, "")
        with pytest.raises(grpc.aio.AioRpcError, match="ask one of: agreement, audit") as refusal:
            await ledger.stub.Ask(ledger_pb2.AskRequest(question="weather"))
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        process.terminate()
        await process.wait()
        assert await printing(run, "lineage", "v1", limit=100, after=first["next"]) == rest
        assert (await printing(run, "doctor"))["ill"] == []


async def test_an_answer_larger_than_a_message_is_read_from_the_database(tmp_path):
    """C12: a bill of 40 tasks with names of half a megabyte, 20 MB, of a run that is up: refused by name over gRPC, whole by the command."""
    names = [f"task-{index}-" + "x" * 500_000 for index in range(40)]
    facts = []
    for index, name in enumerate(names):
        submitted, told = dispatched(index, 0)
        task = msgspec.structs.replace(submitted.task, task_id=name)
        facts += [msgspec.structs.replace(submitted, task=task), told, leased(index, 0)]
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        process = await run.start("services.ledger", endpoint="ledger")
        await ledger.intake(await speak(run, facts))
        asked = (ledger_pb2.AskRequest(question="bill", names=["task"]), ledger_pb2.GetBillRequest(by=["task"]))
        for ask_it, request in zip((ledger.stub.Ask, ledger.stub.GetBill), asked, strict=True):
            with pytest.raises(
                grpc.aio.AioRpcError, match=r"the answer has 2\d{7} bytes and a message at most 16776192; a `gyre"
            ) as refusal:
                await ask_it(request)
            assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        bill = await asyncio.to_thread(ask_ledger, run.folder, "bill", "task")
        assert [row["task"] for row in bill["rows"]] == sorted(names)
        assert process.returncode is None and (await ask(ledger, "books"))["books"] is not None


async def test_good_executions_become_an_offline_data_set(tmp_path):
    """D12: five successes of the run (one of them dropped by age: it is good all the same), of which one still has its tree."""
    async with TestRun(tmp_path, SETTINGS) as run, Asking(run) as ledger:
        await run.start("services.ledger", endpoint="ledger")
        await ledger.intake(await speak(run, history()))
        good = json.loads((await ledger.stub.Ask(ledger_pb2.AskRequest(question="good"))).json)
        assert [sample["sample_id"] for sample in good["samples"]] == [
            "g000000-e0-a1", "g000001-e0-a1", "g000002-e0-a1", "g000002-e1-a1", "g000003-e1-a1",
        ]  # fmt: skip
        tree = build_tree([tree_call([1, 2, 3], [4, 5])])
        store = TreeStore(run.folder.trees)
        store.put("g000001-e0-a1", tree, [path.leaf for path in choose_paths(tree, SAMPLE, 5)])
        store.close()
        asked = ("export", str(tmp_path / "out"), "--run", str(run.folder.root), "--what", "demonstrations", "--json")
        told = json.loads(await asyncio.to_thread(gyre, *asked))["demonstrations"]
        assert (told["samples"], told["without_tree"], told["targets"]) == (1, 4, 2)
        (line,) = (tmp_path / "out" / "demonstrations.jsonl").read_text().splitlines()
        assert json.loads(line) == {"sample_id": "g000001-e0-a1", "ids": [1, 2, 3, 4, 5], "targets": [0, 0, 0, 1, 1]}


async def test_judgements_that_show_drift_raise_the_alarm_while_the_run_is_up(tmp_path):
    """D8: four samples, six pairs, all the other way round; taken in by a process beside the ledger, which goes on."""
    samples = ["g000000-e0-a1", "g000000-e1-a1", "g000001-e0-a1", "g000001-e1-a2"]
    judges = (("ann", "person", 1), ("taste", "model", -1))
    rows = [
        f"{name},{judge},{kind},{sign * place}" for place, name in enumerate(samples) for judge, kind, sign in judges
    ]
    file = tmp_path / "judged.csv"
    file.write_text("\n".join(["sample_id,judge,kind,score", *rows]))
    async with TestRun(tmp_path / "run", SETTINGS) as run, Asking(run) as ledger:
        run.listen([AlarmRaised])
        await run.start("services.ledger", endpoint="ledger")
        await ledger.intake(await speak(run, history()))
        asked = ("agreement", "--import", str(file), "--run", str(run.folder.root), "--json")
        told = json.loads(await asyncio.to_thread(gyre, *asked))
        assert (told["stored"], told["refused"], told["raised"]) == (8, 0, True)
        (alarm,) = await run.until(lambda: alarms(run, "reward_drift"))
        assert alarm.message.startswith("taste agrees with people in 0% of 6 pairs")
        (model,) = (await ask(ledger, "agreement"))["models"]
        assert (model["model"], model["weight"]) == ("taste", 0.0)
        assert "taste: 0.0%" in await asyncio.to_thread(gyre, "agreement", "--run", str(run.folder.root))
