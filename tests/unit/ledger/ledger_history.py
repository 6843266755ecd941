"""A small run told as facts, whole and consistent; tests break one thing at a time.

g000000  v_d 0, step 0   both trained                               2 executions × 2 turns = 4 = the batch's target
g000001  v_d 0, step 1   both trained, one step stale; e1 lost its lease once and timed out at its second attempt
g000002  v_d 1, step 2   rewards do not differ: no gradient, both dropped
g000003  v_d 0           e0: environment never came up; e1: dropped by age (9 steps)
g000004  v_d 2           e0 leased, e1 queued: in flight
g000005  v_d 1           one evaluation, a success
g000004's leased member is suspended and resumed; cell-1 is lost for a while.
"""

import functools
import tempfile
from pathlib import Path

import msgspec
import sqlalchemy as sa

from gyre import records as r
from gyre.config import Config
from gyre.config.load import parse
from gyre.ids import call_id, execution_id, group_id, micro_id, sample_id
from services.ledger.storage import Database, Writer
from services.ledger.storage.writer import _Job

RUN = "t"
TURNS = 2
TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def config(**trajproc) -> Config:
    return parse(
        {
            "run": {"name": RUN},
            "model": {"path": "m"},
            "trajproc": {"turns_per_step": 2 * TURNS, "no_gradient_alarm": 2, **trajproc},
        },
        "test",
    )


def history() -> list[r.Fact]:
    """The facts in the order a real run would publish them."""
    facts: list[r.Fact] = [r.RunStarted(steps=3, fingerprint="f00d", at_s=0)]
    for index, version in enumerate((0, 0, 1, 0, 2, 1)):
        facts += dispatched(index, version, "evaluation" if index == 5 else "train")
    facts += [phase("cell-1", "training", name, 10.0 + at) for name, at in
              zip(r.CELL_PHASES["training"], (0, 2, 3, 8), strict=True)]  # fmt: skip
    facts += execution(0, 0) + execution(0, 1, outcome=0)
    facts += [leased(1, 1, attempt=1), started(1, 1, attempt=1), dropped(1, 1, "duplicate", attempt=1)]
    facts += execution(1, 0) + execution(1, 1, outcome=0, attempt=2, ending="timed_out")
    facts += execution(2, 0, version=1, success_version=1) + execution(2, 1, version=1, success_version=1)
    facts += [leased(3, 0), ended(3, 0, turns=0, ending="failed", occupancy_s=0), dropped(3, 0, "environment_failed")]
    facts += [*execution(3, 1), dropped(3, 1, "age", step=9, age_steps=9)]
    facts += [leased(4, 0)]
    facts += [fact for fact in execution(5, 0, purpose="evaluation", version=1) if not isinstance(fact, r.SampleReady)]
    facts += step(0, [(0, 0, 1), (0, 1, 1)]) + step(1, [(1, 0, 1), (1, 1, 2)])
    facts += [dropped(2, member, "no_gradient", step=2, age_steps=1) for member in (0, 1)]
    facts += step(2, [(2, 0, 1), (2, 1, 1)], no_gradient=True)
    facts += [
        r.StepJoined(step=1, cell="cell-1", mid_batch=True, version=1, checksum="c", at_s=19.0),
        r.WeightsPublished(version=1, path="weights/v000001.safetensors", checksum="c", bytes=10, at_s=30.0),
        r.WaterlevelChanged(waterlevel=2, dispatched=11, finished=9, capacity=64, outstanding_groups=1, policy_version=1,
                            burst=1, at_s=31.0),
        r.AlarmRaised(kind="starvation", message="g000004 waits", service="scheduler", at_s=32.0),
        r.BurstOpened(burst=0, first_step=0, steps=1, need_groups=6, carry_groups=0.5, core_stays=False, at_s=0.5),
        r.PlanChosen(plan=1, steps_per_publish=3, extra_depth_steps=0.0, release_share=0.7, is_two_way=True,
                     order="longest_first", at_s=30.5),
        r.CellReported(cell="cell-1", capacity=0, at_s=32.5, reason="does not answer"),
        r.CellReported(cell="cell-1", capacity=64, at_s=33.0),
        r.BatchOverdue(step=1, ordinal=1, policy="truncate", execution_ids=["g000001-e1", "g000004-e0"], turns=2, turns_target=4,
                       waited_s=60.0, at_s=17.0),
        *[
            r.CallSetAside(call_id=f"g000001-e1-a2-c{number}", execution_id="g000001-e1", group_id="g000001", attempt=2,
                           reason=reason, detail=f"found in call {number}", tokens=3, at_s=34.0 + number)
            for number, reason in enumerate(("version_unknown", "orphan"))
        ],
        scored(1, 1, "taste", 0.75, attempt=2), scored(1, 1, "slow", None, attempt=2),
        *command(4, 0, 1, "suspend", r.ExecutionSuspended), *command(4, 0, 2, "resume", r.ExecutionResumed),
    ]  # fmt: skip
    return facts


def dispatched(index: int, version: int, purpose: r.task.Purpose = "train") -> list[r.Fact]:
    group = group_id(index)
    members = [execution_id(group, member) for member in range(1 if purpose == "evaluation" else 2)]
    limits = r.Limits(wall_s=60, turns_max=10, context_tokens_max=1024, output_tokens_max=64)
    task = r.TaskSpec(task_id=f"task-{index}", task_type="repair", environment="repair", seed=index, limits=limits,
                      purpose=purpose, group_size=len(members))  # fmt: skip
    return [
        r.GroupSubmitted(group_id=group, task=task, tier="all", at_s=1.0),
        r.GroupDispatched(group_id=group, execution_ids=members, task_type="repair", tenant="default", purpose=purpose,
                          tier="all", policy_version=version, queue_wait_s=1.0, promotions=1, at_s=2.0),
    ]  # fmt: skip


def leased(index: int, member: int, attempt: int = 1) -> r.ExecutionLeased:
    group = group_id(index)
    return r.ExecutionLeased(
        execution_id=execution_id(group, member), group_id=group, attempt=attempt, holder="gw", at_s=3.0
    )


def started(index: int, member: int, attempt: int = 1) -> r.ExecutionStarted:
    group = group_id(index)
    return r.ExecutionStarted(
        execution_id=execution_id(group, member), group_id=group, attempt=attempt, environment="repair",
        image_digest="sha256:11", seed=7, tool_versions={"python": "3.11"}, dependency_snapshot="none", at_s=4.0,
    )  # fmt: skip


def ended(index: int, member: int, attempt: int = 1, turns: int = TURNS, ending: r.execution.Ending = "completed",
          outcome: float = 1.0, occupancy_s: float = 6.0, version: int = 0, purpose: r.task.Purpose = "train") -> r.ExecutionEnded:  # fmt: skip
    group = group_id(index)
    return r.ExecutionEnded(
        execution_id=execution_id(group, member), group_id=group, attempt=attempt, task_type="repair", tenant="default",
        purpose=purpose, ending=ending, reason="submitted",
        evaluation=r.Evaluation(outcome=outcome, valid=ending != "failed", milestone_weights={"m": 0.1}, milestone_turns={"m": 1}),
        turns=turns, tokens_sampled=3 * turns, calls=turns, external_calls=turns, occupancy_s=occupancy_s, policy_version=version,
        leased_at_s=3.0, started_at_s=4.0, at_s=10.0, traceparent=TRACE,
    )  # fmt: skip


def call(index: int, member: int, number: int, attempt: int = 1, version: int = 0,
         purpose: r.task.Purpose = "train") -> r.CallRecorded:  # fmt: skip
    group = group_id(index)
    execution, sample = execution_id(group, member), sample_id(execution_id(group, member), attempt)
    return r.CallRecorded(
        call_id=call_id(sample, number), execution_id=execution, group_id=group, attempt=attempt, call_index=number,
        purpose=purpose, parent=call_id(sample, number - 1) if number else "", parent_tokens=5 * number,
        prompt_delta=r.pack([1, 2], "int32"), prompt_tokens=2 + 5 * number, output_ids=r.pack([3, 4, 5], "int32"),
        logprobs=r.pack([-1, -1, -1], "float32"), versions=r.pack([version, version, version + 1], "int32"),
        sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=64, seed=2**64 - 1), finish_reason="tool_calls",
        cells=["cell-0"], at_s=5.0 + number,
    )  # fmt: skip


def ready(
    index: int, member: int, attempt: int = 1, version: int = 0, success: bool = True, truncated: bool = False
) -> r.SampleReady:
    group = group_id(index)
    execution = execution_id(group, member)
    return r.SampleReady(
        sample_id=sample_id(execution, attempt), execution_id=execution, group_id=group, attempt=attempt, task_type="repair",
        tenant="default", reward=float(success), rewards={"outcome": float(success)}, success=success, truncated=truncated,
        advantage=0.5 if success else -0.5, turns=TURNS, tokens_tree=10, tokens_flat=17, targets_chosen=6, targets_sampled=6,
        paths=1, policy_version=version, version_min=version, version_mean=version + 1 / 3, version_max=version + 1, at_s=11.0,
        traceparent=TRACE, segments=2, kappa=0.75, segment_starts=[0, 1], segment_advantages=[0.5, -0.25],
    )  # fmt: skip


def scored(index: int, member: int, evaluator: str, value: float | None, attempt: int = 1) -> r.RewardScored:
    execution = execution_id(group_id(index), member)
    return r.RewardScored(
        sample_id=sample_id(execution, attempt), execution_id=execution, group_id=group_id(index), attempt=attempt,
        task_type="repair", evaluator=evaluator, kind="learned", value=value, valid=value is not None, partial=True, tries=2,
        took_s=1.5, at_s=10.5, evidence={"lines": 3}, looked_at=["diff"], detail="" if value else "timed out",
    )  # fmt: skip


def command(index: int, member: int, ordinal: int, word: r.execution.Command, carried_out: type) -> list[r.Fact]:
    """A command, and the word that it was carried out one second later."""
    group, at_s = group_id(index), 33.0 + ordinal
    execution = execution_id(group, member)
    return [
        r.ExecutionCommanded(execution_id=execution, group_id=group, ordinal=ordinal, command=word, by="operator", reason="", at_s=at_s),
        carried_out(execution_id=execution, group_id=group, attempt=1, ordinal=ordinal, at_s=at_s + 1),
    ]  # fmt: skip


def dropped(
    index: int, member: int, reason: str, attempt: int = 1, step: int = -1, age_steps: int = 0
) -> r.SampleDropped:
    group = group_id(index)
    execution = execution_id(group, member)
    return r.SampleDropped(
        sample_id=sample_id(execution, attempt), execution_id=execution, group_id=group, attempt=attempt, task_type="repair",
        tenant="default", reason=reason, step=step, age_steps=age_steps, waited_s=1.0, turns=TURNS, tokens=6, occupancy_s=6.0,
        at_s=12.0,
    )  # fmt: skip


def execution(index: int, member: int, attempt: int = 1, outcome: float = 1.0, ending: r.execution.Ending = "completed",
              version: int = 0, purpose: r.task.Purpose = "train", success_version: int = 0) -> list[r.Fact]:  # fmt: skip
    """One attempt from lease to sample."""
    return [
        leased(index, member, attempt), started(index, member, attempt),
        *(call(index, member, number, attempt, version, purpose) for number in range(TURNS)),
        ended(index, member, attempt, ending=ending, outcome=outcome, version=version, purpose=purpose),
        ready(index, member, attempt, max(version, success_version), outcome >= 1, ending == "timed_out"),
    ]  # fmt: skip


def step(number: int, members: list[tuple[int, int, int]], no_gradient: bool = False) -> list[r.Fact]:
    """One optimizer step over (group, member, attempt)s of one group."""
    group = group_id(members[0][0])
    samples = [sample_id(execution_id(group_id(index), member), attempt) for index, member, attempt in members]
    micros = [] if no_gradient else [micro_id(number, group, 0)]
    turns = TURNS * len(samples)
    return [
        r.StepOpened(step=number, burst=number, at_s=14.0 + number),
        r.BatchExtended(step=number, group_id=group, sample_ids=samples, micro_ids=micros, turns=turns, turns_total=turns, at_s=15.0),
        r.BatchClosed(
            step=number, cause="turns", turns=turns, turns_target=2 * TURNS, groups=[group], sample_ids=samples, micro_ids=micros,
            divisor=len(samples), truncated_share=0.5 if number == 1 else 0.0, failed_share={} if no_gradient else {"repair": 0.5},
            no_gradient=no_gradient, staleness_mean=float(number > 0), staleness_max=int(number > 0), at_s=16.0,
        ),
        r.StepUpdated(
            step=number, version=number + 1, burst=number, sample_ids=[] if no_gradient else samples,
            micro_cells={micro: "cell-0" for micro in micros}, metrics={"loss": float("nan") if no_gradient else 0.1},
            opened_at_s=14.0, at_s=20.0 + number, sample_metrics={sample: {"loss_share": 0.5} for sample in samples},
        ),
    ]  # fmt: skip


def phase(cell: str, target: r.cell.CellRole, name: str, at_s: float) -> r.RoleChanged:
    return r.RoleChanged(cell=cell, change=1, target=target, phase=name, at_s=at_s)


def changed(facts: list[r.Fact], kind: type, where, **values) -> list[r.Fact]:
    """The facts with every `kind` for which `where(fact)` holds replaced by a copy with `values`; at least one must be."""
    found = [isinstance(fact, kind) and where(fact) for fact in facts]
    assert any(found), f"no {kind.__name__} to change"
    return [msgspec.structs.replace(fact, **values) if hit else fact for fact, hit in zip(facts, found, strict=True)]


def store(database: Database, facts: list[r.Fact], run: str = RUN) -> None:
    """Write without the writer's thread: one transaction."""
    writer = Writer(database, run)
    with database.writing.begin() as connection:
        writer._apply(connection, _Job([(fact, index + 1) for index, fact in enumerate(facts)], (), None))


def kept_books(path, facts: list[r.Fact]) -> Database:
    """A new SQLite ledger holding `facts`."""
    path.write_bytes(_migrated())
    database = Database(f"sqlite:///{path}")
    store(database, facts)
    return database


@functools.cache
def _migrated() -> bytes:
    """An empty ledger's file: migrations are run once, not for each test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        database = Database(f"sqlite:///{path}")
        database.migrate()
        database.close()
        assert not path.with_name("ledger.db-wal").exists(), "all of it is in the one file"
        return path.read_bytes()


def dump(connection: sa.Connection) -> dict[str, list[tuple]]:
    """Every row of every table that facts fill, in key order; `facts.sequence`, the intake's position and what is to be settled aside."""
    tables = sa.inspect(connection).get_table_names()
    return {
        name: sorted(tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {name}")))
        for name in tables if name not in ("facts", "intake", "unsettled", "alembic_version")
    }  # fmt: skip
