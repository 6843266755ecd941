"""Others' facts about steps, boundaries and weights: which batch is open, and how far the run is."""

from gyre import records as r
from services.trajproc.core.fold.pool import NO_NEWS, Pool
from services.trajproc.core.state import Batch


def opened(pool: Pool, fact: r.StepOpened) -> None:
    if fact.step <= pool.closed_step or (pool.batch is not None and pool.batch.step == fact.step):
        return
    if fact.burst != pool.burst[0]:
        pool.burst = (fact.burst, fact.step)
    pool.moved_at_s = max(pool.moved_at_s, fact.at_s)
    pool.step = max(pool.step, fact.step)
    if pool.batch is not None:
        pool.give_back(pool.batch.taken)
    pool.batch = Batch(fact.step, fact.at_s)


def updated(pool: Pool, fact: r.StepUpdated) -> None:
    pool.step = max(pool.step, fact.version)


def waterlevel(pool: Pool, fact: r.WaterlevelChanged) -> object:
    pool.boundary_version = max(pool.boundary_version, fact.policy_version)
    return NO_NEWS


def published(pool: Pool, fact: r.WeightsPublished) -> object:
    pool.published.add(fact.version)
    return NO_NEWS


HANDLERS = {
    r.StepOpened: opened,
    r.StepUpdated: updated,
    r.WaterlevelChanged: waterlevel,
    r.WeightsPublished: published,
}
