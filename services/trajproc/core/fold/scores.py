"""What evaluators said (B4, D4). Said by this service's shell, and still taken as others' facts are: from the stream, at their place in it.

Were an answer folded when it is said, as the processor's own decisions are, a restart might meet it after facts that it came before, and
decide otherwise.
"""

from gyre import records as r
from services.trajproc.core.fold.pool import NO_NEWS, Pool


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
    pool.evaluations_failed[fact.evaluator] += not fact.valid
    return pool.settle(group)


HANDLERS = {r.RewardScored: scored}
