"""The gateway's own cost: `gyre bench gateway --json [--parts latency,history,records,memory,fairness,publish]`.

A real gateway process over loopback HTTP, a real bus with its records on disk, a cell whose engine only waits (`ENGINE_S` a call). "Alone" are
the same calls at that cell without a gateway; what is added is the difference of the two at the same quantile, both measured in turns. The load is a
process of its own, and its HTTP side does next to nothing (load.Line).

    added_ms_p50_<n>, added_ms_p99_<n>   n sessions at once, histories of some turns
    cpu_ms_turns_<t>                     processor time of the gateway for such a call: other work on the machine changes it less
    added_ms_turns_<t>                   one session at a time, after t turns (median); tokens_turns_<t> of prompt
    history_growth_128                   added_ms_turns_128 / added_ms_turns_1
    records_per_s                        calls that are through in a second where the engine takes no time; gateway_cpu_ms: processor time of each
    sessions_per_gib                     of `MEMORY_TURNS` turns; sessions_per_gib_128 of 128 turns
    fair_wait_max_over_mean              1,000 sessions begin together at a cell of `FAIR_SLOTS` slots: the longest wait of one over the mean
    publish_to_first_token_s             from the fact that weights are published to a token that they sampled, embedded engine, small model
"""

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.gateway_parts.load import Direct, Session, spread
from benchmarks.gateway_parts.rig import Rig
from gyre.records import WeightsPublished

SESSIONS = (1, 64, 256)
ENGINE_S = 2.0
"""Of one call under `latency`: some hundred tokens of a model in use take this long."""
LATENCY_ROUNDS, LATENCY_BLOCKS = 3, 3
TURNS = (1, 32, 128)
HISTORY_CALLS = 40
RECORDS_SESSIONS, RECORDS_CALLS = 16, 40
MEMORY_SESSIONS, MEMORY_TURNS = 60, 16
MEMORY_SESSIONS_LONG = 20
EXECUTIONS = 500
"""More than all parts use."""
FAIR_SESSIONS, FAIR_SLOTS, FAIR_CALLS, FAIR_ENGINE_S = 1000, 64, 3, 0.4
PUBLISHED = 5
CELL = "benchmarks.gateway_parts.cell"


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Bench:
    """Measurements on one rig whose cell only waits."""

    def __init__(self, rig: Rig, keys: list[str], direct: Direct) -> None:
        self._rig, self._keys, self._direct = rig, keys, direct
        self._used = 0

    async def sessions(self, count: int) -> list[Session]:
        taken = range(self._used, self._used + count)
        self._used += count
        return [Session(self._rig.url(), self._keys[number], number) for number in taken]

    async def latency(self, count: int) -> dict[str, float]:
        """Sessions and the cell alone take turns; few sessions make more calls of less engine time, for there is no load to spread."""
        engine_s, rounds = (ENGINE_S, LATENCY_ROUNDS) if count > 1 else (0.05, 40)
        sessions, through, alone = await self.sessions(count), [], []
        for session in sessions:
            await session.call(0.001)
        for _ in range(LATENCY_BLOCKS):
            through += await spread([lambda s=s: s.call(engine_s) for s in sessions], engine_s, rounds)
            alone += await spread(
                [lambda s=s: self._direct.call(s.prompt_tokens, engine_s) for s in sessions], engine_s, rounds
            )
        found = {
            f"added_ms_{name}_{count}": round(1e3 * (quantile(through, share) - quantile(alone, share)), 2)
            for name, share in (("p50", 0.5), ("p99", 0.99))
        }
        say(
            f"{count} sessions: {found}, alone p99 {1e3 * (quantile(alone, 0.99) - engine_s):.1f} ms over the engine's time"
        )
        return found

    async def history(self, turns: int) -> dict[str, float]:
        """Medians over calls number `turns` and the next of sessions, begun anew each time for the first; alone with as long a prompt."""
        sessions = await self.sessions(HISTORY_CALLS if turns == 1 else 2)
        for session in sessions:
            while session.turns < turns - 1:
                await session.call(0.001)
        through, alone, tokens, cpu_s = [], [], [], 0.0
        for session in sessions:
            for _ in range(1 if turns == 1 else HISTORY_CALLS // 2):
                before_s = self._rig.processor_s("rollout")
                through.append(await session.call(0.02))
                cpu_s += self._rig.processor_s("rollout") - before_s
                tokens.append(session.prompt_tokens)
                alone.append(await self._direct.call(session.prompt_tokens, 0.02))
        found = {
            f"added_ms_turns_{turns}": round(1e3 * (median(through) - median(alone)), 2),
            f"cpu_ms_turns_{turns}": round(1e3 * cpu_s / len(through), 2), f"tokens_turns_{turns}": round(median(tokens)),
        }  # fmt: skip
        say(f"{turns} turns: {found}")
        return found

    async def records(self) -> dict[str, float]:
        sessions, begin_s, cpu_s = (
            await self.sessions(RECORDS_SESSIONS),
            time.perf_counter(),
            self._rig.processor_s("rollout"),
        )
        await spread([lambda s=s: s.call(0.001) for s in sessions], 0.001, RECORDS_CALLS)
        calls, wall_s = RECORDS_SESSIONS * RECORDS_CALLS, time.perf_counter() - begin_s
        cpu_ms = 1e3 * (self._rig.processor_s("rollout") - cpu_s) / calls
        found = {"records_per_s": round(calls / wall_s, 1), "gateway_cpu_ms": round(cpu_ms, 2)}
        say(f"records: {found}")
        return found

    async def memory(self, count: int, turns: int) -> float:
        """Sessions in a GiB of resident memory. One is played before: what the process once needs for long bodies is no session's."""
        first, *others = await self.sessions(1 + count)
        while first.turns < turns:
            await first.call(0.001)
        before = self._rig.memory_bytes("rollout")
        for session in others:
            while session.turns < turns:
                await session.call(0.001)
        each = (self._rig.memory_bytes("rollout") - before) / count
        say(f"{each / 1024:.0f} KiB for a session of {turns} turns")
        return round(2**30 / max(each, 1.0))


async def waiting_cell(folder: Path, parts: set[str]) -> dict[str, float]:
    """All but fairness and publish."""
    found: dict[str, float] = {}
    async with Rig(folder) as rig:
        keys = await rig.lease(EXECUTIONS)
        await rig.start_serving(CELL)
        direct = Direct(rig)
        bench = Bench(rig, keys, direct)
        if "memory" in parts:  # first: what the process freed before would hide what it needs
            found["sessions_per_gib"] = await bench.memory(MEMORY_SESSIONS, MEMORY_TURNS)
            found["sessions_per_gib_128"] = await bench.memory(MEMORY_SESSIONS_LONG, 128)
        if "latency" in parts:
            for count in SESSIONS:
                found |= await bench.latency(count)
        if "history" in parts:
            for turns in TURNS:
                found |= await bench.history(turns)
            found["history_growth_128"] = round(found["added_ms_turns_128"] / found["added_ms_turns_1"], 2)
        if "records" in parts:
            found |= await bench.records()
        await direct.close()
    return found


async def fairness(folder: Path) -> dict[str, float]:
    """Sessions that begin together at a cell that serves `FAIR_SLOTS` of them at a time, `FAIR_CALLS` calls each."""
    async with Rig(folder) as rig:
        keys = await rig.lease(FAIR_SESSIONS)
        await rig.start_serving(CELL, GYRE_BENCH_SLOTS=str(FAIR_SLOTS))
        say(f"{FAIR_SESSIONS} sessions of {FAIR_CALLS} calls begin together, {FAIR_SLOTS} slots")

        async def waited_s(session: Session) -> float:
            return sum([await session.call(FAIR_ENGINE_S) - FAIR_ENGINE_S for _ in range(FAIR_CALLS)])

        waits_s = await asyncio.gather(*(waited_s(Session(rig.url(), key, n)) for n, key in enumerate(keys)))
        mean_s = sum(waits_s) / len(waits_s)
        found = {"fair_wait_max_over_mean": round(max(waits_s) / mean_s, 2), "fair_wait_mean_s": round(mean_s, 2)}
        say(f"fairness: {found}, least {min(waits_s):.2f} s, longest {max(waits_s):.2f} s")
        return found


async def publish(folder: Path) -> dict[str, float]:
    """Median over published weights; calls run on all the while, and a token by them is seen at the cell, in a call under way."""
    async with Rig(folder, {"context_max": 1024, "slots": 8}, layers=4, hidden=192) as rig:
        await rig.start_serving("services.rollout.cell")
        trainer, direct, took_s = await rig.bus("trainer"), Direct(rig), []
        file = rig.folder.model / "model.safetensors"
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        for version in range(1, PUBLISHED + 1):
            seen = asyncio.create_task(direct.first_token_of(version))
            await direct.running.wait()
            begin_s = time.perf_counter()
            await trainer.publish(
                WeightsPublished(
                    version=version, path=str(file), checksum=digest, bytes=file.stat().st_size, at_s=time.time()
                )
            )
            took_s.append(await seen - begin_s)
        await direct.close()
    found = {"publish_to_first_token_s": round(median(took_s), 3)}
    say(f"publish: {found}, longest {max(took_s):.3f} s")
    return found


PARTS = ("latency", "history", "records", "memory", "fairness", "publish")


async def measure(parts: set[str], where: str | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gyre-bench-", dir=where, ignore_cleanup_errors=True) as folder:
        found = await waiting_cell(Path(folder) / "waiting", parts) if parts - {"fairness", "publish"} else {}
        if "fairness" in parts:
            found |= await fairness(Path(folder) / "fairness")
        if "publish" in parts:
            found |= await publish(Path(folder) / "publish")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="gyre bench gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--folder", help="where the run's folder is made; the system's temporary folder by default")
    given = parser.parse_args()
    answer = asyncio.run(measure(set(given.parts.split(",")), given.folder))
    print(json.dumps(answer) if given.json else "\n".join(f"{name}: {value}" for name, value in answer.items()))


if __name__ == "__main__":
    main()
