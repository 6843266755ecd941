"""What an operator must see of a closed batch and of evaluators (C5, C8, C10, B4). The same batch raises the same alarms, under the same names."""

from gyre.config import TrajprocConfig
from gyre.errors import InvariantBroken
from gyre.records import AlarmRaised, BatchClosed, BatchOverdue, RewardScored
from services.trajproc.core.batch import check_promises

SERVICE = "trajproc"


def key(alarm: AlarmRaised) -> str:
    return f"{alarm.kind}.{alarm.at_s:.6f}"


def of_batch(fact: BatchClosed, no_gradient_streak: int, config: TrajprocConfig) -> list[AlarmRaised]:
    """`no_gradient_streak`: batches without gradient in a row, this one included."""
    found = []
    if fact.no_gradient and no_gradient_streak % config.no_gradient_alarm == 0:
        found.append(_alarm(
            "no_gradient", fact, f"{no_gradient_streak} batches in a row gave no gradient: no group has an advantage other than zero",
            {"batches": float(no_gradient_streak)},
        ))  # fmt: skip
    try:
        check_promises(fact, config)
    except InvariantBroken as error:
        values = {"oldest": float(fact.staleness_max), "cap": float(config.age_steps_max)}
        kind = "staleness_bound" if fact.staleness_max > config.age_steps_max else "invariant"
        found.append(_alarm(kind, fact, str(error), values))
    return found


def of_wait(fact: BatchOverdue) -> AlarmRaised:
    """A batch stays open longer than its wait."""
    message = f"{len(fact.execution_ids)} executions have not arrived after {fact.waited_s:.0f} s: {', '.join(fact.execution_ids[:5])}"
    values = {"executions": float(len(fact.execution_ids)), "waited_s": fact.waited_s}
    return _alarm("batch_overdue", fact, message, values)


def of_evaluator(fact: RewardScored, streak: int) -> AlarmRaised:
    """An evaluator that could not judge `streak` executions in a row, once until it judges again (B4)."""
    message = f"evaluator {fact.evaluator} could not be had for {streak} executions in a row, last {fact.sample_id}: {fact.detail}"
    return AlarmRaised(
        kind="evaluator_failing", message=message, service=SERVICE, at_s=fact.at_s, values={"executions": float(streak)}
    )


def _alarm(kind: str, fact: BatchClosed | BatchOverdue, message: str, values: dict[str, float]) -> AlarmRaised:
    return AlarmRaised(
        kind=kind, message=f"step {fact.step}: {message}", service=SERVICE, at_s=fact.at_s,
        values={"step": float(fact.step), **values},
    )  # fmt: skip
