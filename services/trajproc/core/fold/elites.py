"""The elite store in the fold (D9): admission when a batch has taken a success, replay beside a batch that closes."""

import math
from collections.abc import Iterator

from gyre import ids
from gyre import records as r
from services.trajproc.core.batch import SHARE_EPSILON
from services.trajproc.core.elite import Elite, is_turning
from services.trajproc.core.fold.pool import Pool
from services.trajproc.core.state import Batch, Group, Taken

BYTES_PER_TOKEN = 24
"""Bound of a row's size on disk for each token of its sample's tree: six arrays of four bytes at most."""
KEY_CHARS = 16
"""Of a key in a micro-step's name: what is sent under a name is always the same."""


def told(pool: Pool, fact: r.SampleReady) -> None:
    """A success says under which key it would be held."""
    for verdict in pool.verdicts(fact.group_id, fact.sample_id):
        verdict.elite_key = fact.elite_key
        verdict.elite_bytes = fact.tokens_tree * BYTES_PER_TOKEN


def admit(pool: Pool, group: Group, taken: Taken) -> None:
    """The successes of a group that are trained."""
    rewarded = [verdict for verdict in group.verdicts or [] if verdict.rewards]
    turning = is_turning(sum(verdict.success for verdict in rewarded), len(rewarded))
    for verdict in rewarded:
        name = verdict.sample_id
        if (
            not verdict.elite_key
            or name not in taken.sample_ids
            or name in taken.dropped
            or verdict.elite_key in pool.elites
        ):
            continue
        found = Elite(
            verdict.elite_key, name, group.group_id, group.task_type, verdict.origin, group.policy_version, verdict.elite_bytes,
            turning, order=0,
        )  # fmt: skip
        gone = pool.elites.admit(found)
        if found.key not in gone:
            pool.unsaved[found.key] = (group, verdict)
        _forget(pool, gone)


def closed(pool: Pool, fact: r.BatchClosed) -> None:
    """What was replayed is counted; what the next step would find too old leaves."""
    own = fact.divisor - len(fact.elites)
    pool.elites_owed = max(
        0.0, math.fmod(pool.elites_owed + pool.config.elite_share * own + SHARE_EPSILON, 1.0) - SHARE_EPSILON
    )
    pool.elites.replayed(fact.elites)
    _forget(pool, pool.elites.expire(fact.step + 1, pool.config.age_steps_max))


def impossible(pool: Pool, sample_id: str) -> None:
    """The trainer could do nothing with it: it is not replayed."""
    _forget(pool, pool.elites.remove(sample_id))


def _forget(pool: Pool, keys: list[str]) -> None:
    for key in keys:
        pool.unsaved.pop(key, None)


def micro_steps(pool: Pool, batch: Batch, now_s: float) -> Iterator[tuple[r.MicroStep, Elite]]:
    """One for each execution to be replayed beside a batch. Those whose rows are lost are passed over."""
    count = int(pool.elites_owed + pool.config.elite_share * batch.executions + SHARE_EPSILON)
    for elite in pool.elites.choose(count, batch.taken, batch.origins) if count else []:
        rows = pool.elite_rows(elite.key)
        if rows:
            yield (
                r.MicroStep(
                    micro_id=ids.micro_id(batch.step, f"elite-{elite.key[:KEY_CHARS]}", 0), step=batch.step, group_id=elite.group_id,
                    rows=rows, tokens=sum(row.length for row in rows), at_s=now_s, is_elite=True,
                ),
                elite,
            )  # fmt: skip
