"""What evaluators said (B4, D4). Said by this service's shell, and still taken as others' facts are: from the stream, at their place in it.

Were an answer folded when it is said, as the processor's own decisions are, a restart might meet it after facts that it came before, and
decide otherwise.
"""

import msgspec

from gyre import records as r
from services.trajproc.core import alarms
from services.trajproc.core.fold.pool import NO_NEWS, Pool

FAILING_STREAK = 8
"""Executions in a row that an evaluator could not judge, each after all its tries: it is down, and with it whatever needs it."""


def scored(pool: Pool, fact: r.RewardScored) -> object:
    group = pool.groups.get(fact.group_id)
    member = group.members.get(fact.execution_id) if group is not None else None
    if (
        member is None
        or fact.attempt != member.attempt
        or group.verdicts is not None
        or fact.evaluator in member.scores
    ):
        return NO_NEWS
    member.scores[fact.evaluator] = fact
    _count(pool, fact)
    return pool.settle(group)


def weighed(pool: Pool, fact: r.RewardWeighed) -> object:
    """From its place in the stream on: a group's members are judged at one moment, so no two of them are compared under different weights (D8)."""
    pool.evaluators = tuple(
        msgspec.structs.replace(one, weight=fact.weight)
        if one.name == fact.evaluator and one.kind == "learned"
        else one
        for one in pool.evaluators
    )
    return NO_NEWS


def _count(pool: Pool, fact: r.RewardScored) -> None:
    if fact.valid:
        pool.evaluator_streaks[fact.evaluator] = 0
        return
    pool.evaluations_failed[fact.evaluator] += 1
    pool.evaluator_streaks[fact.evaluator] += 1
    if pool.evaluator_streaks[fact.evaluator] == FAILING_STREAK:
        alarm = alarms.of_evaluator(fact, FAILING_STREAK)
        pool.want("alarm", alarms.key(alarm), alarm)


HANDLERS = {r.RewardScored: scored, r.RewardWeighed: weighed}
