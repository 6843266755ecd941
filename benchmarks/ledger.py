"""The ledger at size: `gyre bench ledger --json [--millions 1] [--folder DIR]`, SQLite.

    intake_per_s          facts stored a second by the writer, in transactions as the intake makes them (500 facts), each on disk
    explain_ms_p95_<N>m   one sample's page, over 200 samples, among N million facts
    bill_s_max_<N>m       the slowest bill by any two dimensions; bill_cpu_s_max_<N>m: most processor seconds, which a busy machine changes less
    books_s_<N>m          `gyre books`

The first GROUPS groups are stored as facts; the rest are copies of their rows under other names and of later steps, made in the database.
A million facts need about 1 GB, 10 million ten times that: give a folder with room.
"""

import argparse
import itertools
import json
import random
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

from gyre import records as r
from gyre.config import Config
from gyre.config.load import parse
from gyre.ids import call_id, execution_id, group_id, micro_id, sample_id
from services.ledger.core.tables import METADATA
from services.ledger.queries import bill, books, explain
from services.ledger.queries.bill import DIMENSIONS
from services.ledger.storage import Database, Writer
from services.ledger.storage.writer import _Job

RUN = "bench"
GROUPS, GROUPS_PER_STEP, MEMBERS, CALLS, TOKENS = 48, 16, 8, 20, 64
TENANTS, TASK_TYPES = 20, 12
LOST_EVERY = 10
"""Every tenth execution had an attempt that was lost after a quarter of its calls."""
TWO_VERSIONS_EVERY = 3
"""Every third was sampled by two weight versions."""
LIMITS = r.Limits(wall_s=600, turns_max=50, context_tokens_max=4096, output_tokens_max=TOKENS)
FACTS_PER_TRANSACTION = 500
EXPLAINED = 200
_IDS = {"key", "group_id", "execution_id", "sample_id", "call_id", "micro_id", "parent"}
_STEPS = {"step", "version", "version_min", "version_mean", "version_max", "policy_version"}


def told() -> list[r.Fact]:
    """What a run says of GROUPS groups, in the order of their steps."""
    facts: list[r.Fact] = []
    for index in range(GROUPS):
        group, step = group_id(index), index // GROUPS_PER_STEP
        members = [execution_id(group, member) for member in range(MEMBERS)]
        task = r.TaskSpec(task_id=f"task-{index}", task_type=f"type-{index % TASK_TYPES}", environment="repair", seed=index,
                          group_size=MEMBERS, limits=LIMITS, tenant=f"tenant-{index % TENANTS}")  # fmt: skip
        facts.append(r.GroupSubmitted(group_id=group, task=task, tier="all", at_s=step))
        facts.append(r.GroupDispatched(group_id=group, execution_ids=members, task_type=task.task_type, tenant=task.tenant, purpose="train",
                                       tier="all", policy_version=step, queue_wait_s=1.0, promotions=0, at_s=step))  # fmt: skip
        samples = []
        for member, execution in enumerate(members):
            number = index * MEMBERS + member
            attempts = 2 if number % LOST_EVERY == 0 else 1
            for attempt in range(1, attempts + 1):
                calls = CALLS if attempt == attempts else CALLS // 4
                facts += _attempt(execution, group, attempt, calls, step, number % TWO_VERSIONS_EVERY == 0, task)
            samples.append(sample_id(execution, attempts))
            facts.append(_ready(samples[-1], execution, group, attempts, step, task))
        micro = micro_id(step, group, 0)
        facts.append(
            r.BatchExtended(
                step=step, group_id=group, sample_ids=samples, micro_ids=[micro], turns=160, turns_total=160, at_s=step
            )
        )
        facts.append(_updated(index, step, samples, micro))
    return facts


def _attempt(execution, group, attempt, calls, version, has_two, task) -> list[r.Fact]:
    sample = sample_id(execution, attempt)
    facts: list[r.Fact] = [
        r.ExecutionLeased(execution_id=execution, group_id=group, attempt=attempt, holder="gateway", at_s=version),
        r.ExecutionStarted(execution_id=execution, group_id=group, attempt=attempt, environment="repair", image_digest="sha256:11", seed=7,
                           tool_versions={"python": "3.11"}, dependency_snapshot="none", at_s=version),
    ]  # fmt: skip
    for index in range(calls):
        by = version + (has_two and index >= calls // 2)
        facts.append(r.CallRecorded(
            call_id=call_id(sample, index), execution_id=execution, group_id=group, attempt=attempt, call_index=index, purpose="train",
            parent=call_id(sample, index - 1) if index else "", parent_tokens=TOKENS * index, prompt_delta=b"", prompt_tokens=TOKENS * index,
            output_ids=r.pack([1] * TOKENS, "int32"), logprobs=b"", versions=r.pack([by] * TOKENS, "int32"), finish_reason="stop",
            sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=TOKENS, seed=1), cells=["cell-0"], at_s=version,
        ))  # fmt: skip
    facts.append(r.ExecutionEnded(
        execution_id=execution, group_id=group, attempt=attempt, task_type=task.task_type, tenant=task.tenant, purpose="train", ending="completed",
        reason="submitted", evaluation=None, turns=calls, tokens_sampled=TOKENS * calls, calls=calls, external_calls=calls, occupancy_s=30.0 * calls,
        policy_version=version, leased_at_s=version, started_at_s=version, at_s=version + 1,
    ))  # fmt: skip
    return facts


def _ready(sample, execution, group, attempt, version, task) -> r.SampleReady:
    return r.SampleReady(
        sample_id=sample, execution_id=execution, group_id=group, attempt=attempt, task_type=task.task_type, tenant=task.tenant, reward=1.0,
        rewards={"outcome": 1.0}, success=True, truncated=False, advantage=0.5, turns=CALLS, tokens_tree=CALLS * TOKENS, tokens_flat=CALLS * TOKENS,
        targets_chosen=CALLS * TOKENS, targets_sampled=CALLS * TOKENS, paths=1, policy_version=version, version_min=version, version_mean=version,
        version_max=version, at_s=version + 2,
    )  # fmt: skip


def _updated(index: int, step: int, samples: list[str], micro: str) -> r.StepUpdated:
    """One update a group, so that each is complete for itself; only the numbers of steps differ from a real run's."""
    metrics = {"compute_s": 40.0, "targets": float(len(samples) * CALLS * TOKENS)}
    seen = {sample: {"targets": float(CALLS * TOKENS), "tokens": float(CALLS * TOKENS)} for sample in samples}
    return r.StepUpdated(step=index, version=index + 1, burst=0, sample_ids=samples, micro_cells={micro: "cell-0"}, metrics=metrics, opened_at_s=step,
                         at_s=step + 3, sample_metrics=seen)  # fmt: skip


def stored_per_s(database: Database, facts: list[r.Fact]) -> float:
    """Through the writer's own transaction; statements are prepared by a first one, whose facts are counted too."""
    writer, begin_s = Writer(database, RUN), time.perf_counter()
    for start in range(0, len(facts), FACTS_PER_TRANSACTION):
        with database.writing.begin() as connection:
            batch = [(fact, start + place) for place, fact in enumerate(facts[start : start + FACTS_PER_TRANSACTION])]
            writer._apply(connection, _Job(batch, (), None))
    return len(facts) / (time.perf_counter() - begin_s)


def multiply(database: Database, copies: int) -> None:
    """`copies` more of every row, ids under a prefix of their own, steps and versions later."""
    with database.writing.begin() as connection:
        for table in METADATA.sorted_tables:
            names = [column.name for column in table.columns]
            if table.name in ("intake", "alembic_version") or not _IDS & set(names) | _STEPS & set(names):
                continue
            connection.execute(
                sa.text(f"""
                    INSERT INTO {table.name} ({", ".join(map(_quoted, names))})
                    WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n WHERE k < :copies)
                    SELECT {", ".join(_copied(name, table.name) for name in names)} FROM n, {table.name} t WHERE :copies > 0
                """),
                {"copies": copies},
            )


def _copied(name: str, table: str) -> str:
    if name in _IDS:
        return f"CASE WHEN t.{name} = '' THEN '' ELSE printf('n%04d-', n.k) || t.{name} END"
    every = GROUPS if table in ("steps", "step_samples") else GROUPS // GROUPS_PER_STEP
    return f"t.{name} + n.k * {every}" if name in _STEPS else f"t.{_quoted(name)}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def measure(database: Database, config: Config, size: str) -> dict[str, float]:
    """Seconds and milliseconds of questions, each asked on a snapshot of its own as the service does."""
    with database.read() as connection:
        every = connection.scalars(sa.text("SELECT sample_id FROM samples")).all()
    took_ms = sorted(1e3 * _timed(database, explain, sample) for sample in random.Random(1).choices(every, k=EXPLAINED))
    bills, cpu_s = {}, []
    for pair in itertools.combinations(DIMENSIONS, 2):
        begin_s = time.process_time()
        bills[pair] = _timed(database, bill, config, pair)
        cpu_s.append(time.process_time() - begin_s)
    slowest = max(bills, key=lambda pair: bills[pair])
    return {
        f"explain_ms_p95_{size}": round(took_ms[int(0.95 * EXPLAINED)], 2), f"bill_s_max_{size}": round(bills[slowest], 3),
        f"bill_slowest_{size}": ",".join(slowest), f"bill_cpu_s_max_{size}": round(max(cpu_s), 3),
        f"books_s_{size}": round(_timed(database, books, config), 2),
    }  # fmt: skip


def _timed(database: Database, question, *arguments) -> float:
    begin_s = time.perf_counter()
    with database.read() as connection:
        question(connection, RUN, *arguments)
    return time.perf_counter() - begin_s


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="gyre bench ledger", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--millions", type=int, default=1)
    parser.add_argument("--folder", help="where the database is made; the system's temporary folder by default")
    given = parser.parse_args()
    config = parse({"run": {"name": RUN}, "model": {"path": "m"}}, "bench")
    facts = told()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        database = Database(f"sqlite:///{Path(folder) / 'ledger.db'}")
        database.migrate()
        answer: dict[str, float] = {"intake_per_s": round(stored_per_s(database, facts))}
        multiply(database, given.millions * 1_000_000 // len(facts) - 1)
        with database.read() as connection:
            answer["facts"] = connection.scalar(sa.text("SELECT count(*) FROM facts"))
        answer |= measure(database, config, f"{given.millions}m")
        database.close()
    print(json.dumps(answer) if given.json else "\n".join(f"{name}: {value}" for name, value in answer.items()))


if __name__ == "__main__":
    main()
