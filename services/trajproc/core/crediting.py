"""Verdicts of a judged group → their credit (B7, D3). The place where records meet services.trajproc.core.credit."""

from gyre.config import TrajprocConfig
from services.trajproc.core.credit import Course, Credit, Critic, assign
from services.trajproc.core.running import RunningRewards
from services.trajproc.core.sampling import target_calls
from services.trajproc.core.state import Group, Member, Verdict


def give_credit(group: Group, config: TrajprocConfig, critic: Critic, running: RunningRewards) -> None:
    """Set `credit` and `has_gradient` of every verdict with a reward; the critic and the running rewards learn from them.

    The baseline is over every execution with a reward, also one without target tokens, unless the configuration leaves those out that policy
    keeps from the gradient. What a batch's lines drop later does not change it.
    """
    rewarded = [verdict for verdict in group.verdicts or [] if verdict.rewards]
    counted = [verdict for verdict in rewarded if config.baseline_masked or not is_masked(verdict, config)]
    members = [group.members[verdict.ended.execution_id] for verdict in counted]
    courses = [_course(*pair) for pair in zip(members, counted, strict=True)]
    credits = _with_fallback(
        assign(courses, group.task_type, config, critic), courses, group.task_type, config, running
    )
    running.learn(group.task_type, [course.reward for course in courses])
    for verdict, member, credit in zip(counted, members, credits, strict=True):
        verdict.credit = credit
        tree = member.tree(config.class_order)
        trained = [tree.calls[call].call_index for call in target_calls(tree, config.class_order)]
        verdict.has_gradient = bool(credit.of(trained).any())


def _with_fallback(
    credits: list[Credit], courses: list[Course], task_type: str, config: TrajprocConfig, running: RunningRewards
) -> list[Credit]:
    """Where the group gives no gradient by itself, its executions' rewards against the running mean of their task type, if that is wanted (D9)."""
    mean = running.mean(task_type) if config.baseline_fallback == "running" else None
    if mean is None or config.advantage == "zero" or any(any(credit.advantages) for credit in credits):
        return credits
    found = [course.reward - mean for course in courses]
    return [Credit(advantage, (0,), (advantage,)) for advantage in found]


def is_masked(verdict: Verdict, config: TrajprocConfig) -> bool:
    """Whether it is known already that the execution gives no gradient."""
    return bool(verdict.drop) or (verdict.is_truncated and config.truncated_share_max == 0.0)


def _course(member: Member, verdict: Verdict) -> Course:
    """A reply that was delivered is a turn, also where its record was set aside: the environment counted it."""
    evaluation = verdict.ended.evaluation
    return Course(
        reward=verdict.reward,
        turns=sorted({call.call_index for call in member.calls.values() if call.delivered}),
        milestone_turns=evaluation.milestone_turns,
        milestone_weights=verdict.milestone_weights,
        tokens=verdict.ended.tokens_sampled,
    )
