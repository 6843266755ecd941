"""What goes into a batch, and what is said when it closes (C5, C8, C10). Pure functions of groups and batches."""

from collections import Counter
from collections.abc import Mapping, Sequence

from gyre.config import EvaluatorConfig, TrajprocConfig
from gyre.errors import InvariantBroken
from gyre.records import BatchClosed, CallSetAside
from services.trajproc.core.origins import are_mixed, origin_of, separate
from services.trajproc.core.sampling import target_calls
from services.trajproc.core.scoring import (
    composite,
    failed_required,
    is_success,
    missing_in_group,
    values_of,
    why_no_reward,
)
from services.trajproc.core.state import Batch, Group, Member, Taken, Verdict, sample_of

NOTHING: Mapping[str, str] = {}
SHARE_EPSILON = 1e-9
"""Shares such as 0.2·5 must count as the whole numbers they are."""


def leave_out(group: Group) -> dict[str, CallSetAside]:
    """What is said of the call records that cannot be trusted, of a complete group's members with a reward.

    Told when everything is there and in call order, so that the order in which records arrived does not matter.
    """
    facts: dict[str, CallSetAside] = {}
    for member in group.dispatched_members:
        if member.ended is None or member.builder is None or why_no_reward(member.ended):
            continue
        problems = member.builder.problems
        for name in sorted(problems, key=lambda name: (member.calls[name].call_index, name)):
            call, problem = member.calls[name], problems[name]
            facts[name] = CallSetAside(
                call_id=name, execution_id=member.execution_id, group_id=group.group_id, attempt=member.ended.attempt,
                reason=problem.reason, detail=problem.detail, tokens=len(call.output_ids) // 4,
            )  # fmt: skip
    return facts


def judge(group: Group, config: TrajprocConfig, evaluators: Sequence[EvaluatorConfig] = ()) -> list[Verdict]:
    """Verdicts of a complete group: what each member is paid, or why it leaves training. Credit is given afterwards (crediting.py).

    Every evaluator has said its word, or that it could not (B4).
    """
    verdicts = []
    members = [group.members[name] for name in group.execution_ids]
    failures = {member.execution_id: failed_required(member.scores, evaluators) for member in members}
    rewarded = [member for member in members if not why_out(member) and not failures[member.execution_id]]
    left_out = missing_in_group([member.scores for member in rewarded if not is_placeholder(member)], evaluators)
    for member in members:
        assert member.ended is not None
        verdict = Verdict(sample_of(member.ended), member.ended, why_out(member), origin=origin_of(member))
        if not verdict.drop and failures[member.execution_id]:
            verdict.drop, verdict.detail = "evaluation_failed", failures[member.execution_id]
        if not verdict.drop:
            evaluation, values = member.ended.evaluation, values_of(member.scores, left_out)
            reward = composite(evaluation, config, evaluators, values, member.ended.task_type)
            verdict.reward, verdict.rewards = reward.total, reward.components
            verdict.milestone_weights = reward.milestone_weights
            verdict.success = is_success(evaluation, config, evaluators, values)
            if not len(target_calls(member.tree(config.class_order), config.class_order)):
                verdict.drop = "no_targets"
        verdicts.append(verdict)
    separate(verdicts)
    return verdicts


def why_out(member: Member) -> str:
    """The drop reason of a member without a reward; empty where there is one. What was voided because it was late left for the wait (C5)."""
    reason = why_no_reward(member.ended)
    return "wait" if reason == "voided" and member.is_late else reason


def is_placeholder(member: Member) -> bool:
    """Nothing to evaluate was left behind, so nobody was asked."""
    return member.ended.evaluation is not None and member.ended.evaluation.placeholder


def failed_share_line(task_type: str, config: TrajprocConfig) -> float:
    return config.failed_share_by_type.get(task_type, config.failed_share_max)


def kept_max(kept: int, marked: int, unmarked: int, share: float) -> int | None:
    """How many marked (failed, truncated) samples may join `kept` samples, `marked` of them marked, together with `unmarked` others.

    The largest k with marked + k ≤ share·(kept + unmarked + k); None: any number.
    """
    if share >= 1.0:
        return None
    return max(0, int((share * (kept + unmarked) - marked) / (1.0 - share) + SHARE_EPSILON))


def take(group: Group, batch: Batch, config: TrajprocConfig) -> Taken:
    """The group's part in the batch, inside the line for truncated executions (C5) and the failure quota of its task type (C10).

    Members are exchangeable, so both keep the first ones in member
    order, and the baseline stays that of the whole group. A group without
    gradient is consumed whole: its executions and turns count, so that the law of staleness holds.
    """
    counted, dropped = group.trainable, {}
    while over := _over_a_line(counted, group.task_type, batch, config):
        dropped |= over
        counted = [verdict for verdict in counted if verdict.sample_id not in over]
    has_gradient = any(verdict.has_gradient for verdict in counted)
    if not has_gradient:
        dropped |= {verdict.sample_id: "no_gradient" for verdict in counted}
    return Taken(
        group_id=group.group_id,
        task_type=group.task_type,
        policy_version=group.policy_version,
        executions=len(group.execution_ids),
        sample_ids=[verdict.sample_id for verdict in counted],
        turns=sum(verdict.ended.turns for verdict in counted),
        truncated=sum(verdict.is_truncated for verdict in counted),
        kept=len(counted) if has_gradient else 0,
        failed=sum(not verdict.success for verdict in counted) if has_gradient else 0,
        origins=Counter(verdict.origin for verdict in counted),
        dropped=dropped,
    )


def _over_a_line(counted: list[Verdict], task_type: str, batch: Batch, config: TrajprocConfig) -> dict[str, str]:
    """Sample → reason for those of `counted` that would bring the batch over a line; empty when both hold.

    A drop for one line shrinks what the other is a share of, so the caller asks again; each answer drops at least one.
    """
    truncated = [verdict.sample_id for verdict in counted if verdict.is_truncated]
    others = len(counted) - len(truncated)
    room = kept_max(batch.executions, batch.truncated, others, config.truncated_share_max)
    if room is not None and truncated[room:]:
        return dict.fromkeys(truncated[room:], "truncated")
    if not any(verdict.has_gradient for verdict in counted):
        return {}
    failed = [verdict.sample_id for verdict in counted if not verdict.success]
    others = len(counted) - len(failed)
    room = kept_max(*batch.of_type(task_type), others, failed_share_line(task_type, config))
    return {} if room is None else dict.fromkeys(failed[room:], "quota")


def closed(batch: Batch, turns_target: int, at_s: float, replayed: Mapping[str, str] = NOTHING) -> BatchClosed:
    """The batch's last word. `replayed`: micro-step → sample of the elite store, trained again beside the batch's own (D9).

    An empty batch has divisor 1, so that whoever divides by it gets its zero gradient back. The divisor counts executions without gradient too;
    `sample_ids` are those that are trained, since the others were dropped.
    """
    parts = list(batch.taken.values())
    sample_ids = [name for part in parts for name in part.sample_ids if name not in part.dropped]
    micro_ids = [name for part in parts for name in part.micro_ids or []]
    failed_share = {}
    for task_type in sorted({part.task_type for part in parts}):
        kept, failed = batch.of_type(task_type)
        if kept:
            failed_share[task_type] = failed / kept
    mean, oldest = staleness(batch)
    return BatchClosed(
        step=batch.step,
        cause=batch.closing,
        turns=batch.turns,
        turns_target=turns_target,
        groups=[part.group_id for part in parts],
        sample_ids=sample_ids,
        micro_ids=[*micro_ids, *replayed],
        elites=list(replayed.values()),
        divisor=max(1, batch.executions + len(replayed)),
        truncated_share=batch.truncated / max(1, batch.executions),
        failed_share=failed_share,
        no_gradient=not micro_ids,
        staleness_mean=mean,
        staleness_max=oldest,
        at_s=at_s,
        origins=dict(batch.origins),
        untrained_targets=sum(part.untrained_targets for part in parts),
        untrained_sequences=sum(part.untrained_sequences for part in parts),
    )


def staleness(batch: Batch) -> tuple[float, int]:
    """Mean and maximum of (step − v_d) over all executions of the groups that the batch consumed (A5); zeros when it is empty."""
    ages = [(batch.step - part.policy_version, part.executions) for part in batch.taken.values()]
    executions = sum(count for _, count in ages)
    if not executions:
        return 0.0, 0
    return sum(age * count for age, count in ages) / executions, max(age for age, _ in ages)


def check_promises(fact: BatchClosed, config: TrajprocConfig) -> None:
    """Raises InvariantBroken where a closed batch breaks what is promised of every batch."""
    if fact.staleness_max > config.age_steps_max:
        raise InvariantBroken(
            f"the batch of step {fact.step} holds an execution of age {fact.staleness_max}, the cap is {config.age_steps_max}"
        )
    if fact.cause == "turns" and fact.turns < fact.turns_target:
        raise InvariantBroken(f"the batch of step {fact.step} closed by turns with {fact.turns} of {fact.turns_target}")
    if fact.truncated_share > config.truncated_share_max + SHARE_EPSILON:
        raise InvariantBroken(f"the batch of step {fact.step} holds {fact.truncated_share:.3f} truncated executions")
    if are_mixed(fact.origins):
        raise InvariantBroken(f"the batch of step {fact.step} holds replays beside resamples")
    for task_type, share in fact.failed_share.items():
        if share > failed_share_line(task_type, config) + SHARE_EPSILON:
            raise InvariantBroken(f"the batch of step {fact.step} keeps {share:.3f} failed samples of {task_type}")
