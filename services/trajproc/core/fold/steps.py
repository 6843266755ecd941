"""Others' facts about steps, boundaries and weights: which batch is open, and how far the run is."""

from gyre import records as r
from services.trajproc.core.fold import elites
from services.trajproc.core.fold.pool import NO_NEWS, Pool
from services.trajproc.core.state import Batch, Impossible


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
    """What the trainer found impossible leaves training, and what the elite store holds of it."""
    pool.step = max(pool.step, fact.version)
    steps = [step for step in pool.in_training if step <= fact.step]
    held = {name: sample for step in steps for name, sample in pool.in_training.pop(step).items()}
    for name, why in fact.set_aside.items():
        elites.impossible(pool, name)
        if name in held:
            pool.want("untrainable", name, Impossible(name, held[name], fact.step, why))


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
