"""Well-formed facts that make no sense, in any order: nothing that others say stops the processor or brings a batch out of its promises (issue 4)."""

from types import SimpleNamespace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gyre import ids
from gyre import records as r
from gyre.bus.subjects import natural_key
from services.trainer.gradient import check_row
from services.trajproc.core.batch import check_promises
from tests.unit.trajproc.builders import Live, call, config, ended, group, leased, opened, published, started, submitted
from tests.unit.trajproc.test_setaside import garbage

A, B, C = (ids.group_id(index) for index in range(3))
GROUPS = st.sampled_from([A, B, C, "", "g", "x-e0"])
EXECUTIONS = st.sampled_from([f"{name}-e{member}" for name in (A, B, C) for member in (0, 1, 9)] + ["", "-e", "e0"])
COUNTS = st.sampled_from([0, 1, 2, 3, -1, 2**31, 2**62])
NUMBERS = st.sampled_from([0.0, 1.0, 0.5, -1.0, float("nan"), float("inf"), 1e308])
TIMES_S = st.floats(0, 1e9)


@st.composite
def strange(draw) -> object:
    """One fact of another service; ids of this run or of none, numbers of any size."""
    execution, name = draw(EXECUTIONS), draw(GROUPS)
    kind = draw(st.integers(0, 9))
    match kind:
        case 0:
            changes = garbage(SimpleNamespace(draw=draw)) if draw(st.booleans()) else {}
            return msgspec.structs.replace(
                call([1, 2], [3], execution=f"{A}-e0"),
                execution_id=execution,
                group_id=name,
                attempt=draw(COUNTS),
                **changes,
            )
        case 1:
            outcome = draw(st.none() | NUMBERS)
            evaluation = None if outcome is None else r.Evaluation(
                outcome=outcome, valid=draw(st.booleans()), placeholder=draw(st.booleans()), milestones={"m": draw(st.booleans())},
                milestone_turns={"m": draw(COUNTS)},
            )  # fmt: skip
            fields = {field: draw(COUNTS) for field in ("attempt", "turns", "calls", "tokens_sampled")}
            kept = {
                "ending": draw(st.sampled_from(["completed", "timed_out", "failed", "voided"])),
                "reason": draw(st.text(max_size=5)),
            }
            return msgspec.structs.replace(
                ended(A, 0),
                execution_id=execution,
                group_id=name,
                evaluation=evaluation,
                at_s=draw(TIMES_S),
                **fields,
                **kept,
            )
        case 2:
            members = draw(st.lists(EXECUTIONS, max_size=3))
            return r.GroupDispatched(
                group_id=name, execution_ids=members, task_type="repair", tenant="t", purpose=draw(st.sampled_from(["train", "evaluation"])),
                tier="all", policy_version=draw(COUNTS), queue_wait_s=0.0, promotions=0, at_s=draw(TIMES_S), attempt_base=draw(COUNTS),
            )  # fmt: skip
        case 3:
            return msgspec.structs.replace(leased(A, 0, draw(COUNTS)), execution_id=execution, group_id=name)
        case 4:
            return published(draw(COUNTS))
        case 5:
            why = draw(
                st.dictionaries(st.sampled_from([f"{A}-e0-a1", f"{B}-e1-a1", "", "x"]), st.text(max_size=5), max_size=2)
            )
            return r.StepUpdated(
                step=draw(COUNTS), version=draw(COUNTS), burst=0, sample_ids=[], micro_cells={}, metrics={}, opened_at_s=0.0, at_s=1.0,
                set_aside=why,
            )  # fmt: skip
        case 6:
            return r.RewardScored(
                sample_id=f"{execution}-a1", execution_id=execution, group_id=name, attempt=draw(COUNTS), task_type="repair",
                evaluator=draw(st.text(max_size=3)), kind="learned", value=draw(st.none() | NUMBERS), valid=draw(st.booleans()), partial=False,
                tries=1, took_s=0.0, at_s=1.0,
            )  # fmt: skip
        case 7:
            return submitted(draw(st.sampled_from([A, B, C])), draw(st.sampled_from(["train", "evaluation"])))
        case 8:
            return r.ExecutionStarted(
                execution_id=execution, group_id=name, attempt=draw(COUNTS), environment="e", image_digest="", seed=1, tool_versions={},
                dependency_snapshot="", at_s=1.0, is_replay=draw(st.booleans()),
            )  # fmt: skip
        case _:
            return opened(draw(st.sampled_from([0, 1, 2, 3, -1, 2**31])))


@settings(max_examples=200, deadline=None)
@given(st.lists(strange(), max_size=12), st.data())
def test_foreign_facts_stop_nothing(facts, data):
    """Two sound groups among them. Nothing is raised or said twice, batches keep their promises, rows are sound by the trainer's own check, and the
    state can be rebuilt from the stream to the same decisions."""
    sound = [started(), opened(0), *group(A, [1.0, 0.0]), *group(B, [0.0, 1.0])]
    for fact in facts:
        sound.insert(data.draw(st.integers(0, len(sound))), fact)
    settings_ = config(turns_per_step=2)
    live = Live(settings_)
    live.see(*sound).tick(1e6)
    list(live.processor.overdue_records(1e12))
    keys = [natural_key(fact) for fact in live.said if not isinstance(fact, r.MicroStep)]
    assert len(keys) == len(set(keys)), "nothing is said twice"
    for closed in live.all(r.BatchClosed):
        check_promises(closed, settings_)
    for micro in live.queue:
        for row in micro.rows:
            check_row(row, 2**31, 2**62)
    again = Live(settings_, past=live.stream)
    assert again.said == []
