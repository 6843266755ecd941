"""Verdicts of a judged group → their credit (B7, D3). The place where records meet services.trajproc.core.credit."""

from collections.abc import Sequence

from gyre.config import TrajprocConfig
from gyre.records import CallRecorded
from services.trajproc.core.credit import Course, Critic, assign
from services.trajproc.core.state import Group, Member, Verdict


def give_credit(group: Group, config: TrajprocConfig, critic: Critic) -> None:
    """Set `credit` and `has_gradient` of every verdict with a reward; the critic learns from them.

    The baseline is over every execution with a reward, also one without target tokens, unless the configuration leaves those out that policy
    keeps from the gradient. What a batch's lines drop later does not change it.
    """
    rewarded = [verdict for verdict in group.verdicts or [] if verdict.rewards]
    counted = [verdict for verdict in rewarded if config.baseline_masked or not is_masked(verdict, config)]
    members = [group.members[verdict.ended.execution_id] for verdict in counted]
    courses = [_course(*pair, group, config) for pair in zip(members, counted, strict=True)]
    credits = assign(courses, group.task_type, config, critic)
    for verdict, member, credit in zip(counted, members, credits, strict=True):
        verdict.credit = credit
        calls = member.calls.values()
        verdict.has_gradient = bool(
            credit.of([call.call_index for call in calls if is_target(call, config.class_order)]).any()
        )


def is_masked(verdict: Verdict, config: TrajprocConfig) -> bool:
    """Whether it is known already that the execution gives no gradient."""
    return bool(verdict.drop) or (verdict.is_truncated and config.truncated_share_max == 0.0)


def is_target(call: CallRecorded, class_order: Sequence[str]) -> bool:
    """Whether sampling may take its output: a call of a trained role whose output reached the harness."""
    return call.role in class_order and call.delivered and bool(call.output_ids)


def _course(member: Member, verdict: Verdict, group: Group, config: TrajprocConfig) -> Course:
    """A reply that was delivered is a turn, also where its record was set aside: the environment counted it."""
    evaluation = verdict.ended.evaluation
    aside = [_index(name) for name, fact in group.set_aside.items() if fact.execution_id == member.execution_id]
    delivered = [call.call_index for call in member.calls.values() if call.delivered]
    return Course(
        reward=verdict.reward,
        turns=sorted({*delivered, *aside}),
        milestone_turns=evaluation.milestone_turns,
        milestone_weights=verdict.milestone_weights,
        tokens=verdict.ended.tokens_sampled,
    )


def _index(call_id: str) -> int:
    """gyre.ids.call_id's last part."""
    return int(call_id.rpartition("-c")[2])
