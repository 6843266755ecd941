"""Back-pressure towards submitters: what may wait, for whom there is room, and when to come again (C1)."""

import math

from gyre.errors import Overloaded
from gyre.records import TaskSpec
from services.scheduler.core import Settings, State

EVALUATIONS_MAX = 10_000
"""Evaluation groups of one request and those that wait. They leave at the next decision, past every tier's cap."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 30.0
RETRY_SHARE = 0.25
"""A queue empties at boundaries. Who comes again after this share of the time since the last one is late by at most that share of a burst, however
long bursts are."""
OTHERS_WEIGHT = 1.0
"""Where weights are set, this much of a tier is kept for the tenants that are not named, all together."""


def tenant_queue_max(settings: Settings, tier: str, tenant: str) -> int:
    """Groups that a tenant may have waiting in a tier: all of it while no weights are set, else its share by weight, at least one."""
    queue_max = settings.tier(tier).queue_max
    if not settings.tenant_weights:
        return queue_max
    whole = sum(settings.tenant_weights.values()) + OTHERS_WEIGHT
    share = settings.tenant_weights.get(tenant, OTHERS_WEIGHT) / whole
    return max(1, math.floor(queue_max * share))


def retry_after_s(state: State, now_s: float) -> float:
    """When it is worth asking again."""
    return min(RETRY_MAX_S, max(RETRY_MIN_S, RETRY_SHARE * (now_s - state.boundary_at_s)))


class Admission:
    """Counts what one request adds to the queues. `admit` raises Overloaded for the first task for which there is no room."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state = state
        self._now_s = now_s
        self._tiers: dict[str, int] = {}
        self._tenants: dict[tuple[str, str], int] = {}
        self._evaluations = len(state.evaluations)

    def admit(self, task: TaskSpec, tier: str) -> None:
        if task.purpose == "evaluation":
            if self._evaluations >= EVALUATIONS_MAX:
                self._refuse(f"{EVALUATIONS_MAX} evaluation groups wait already")
            self._evaluations += 1
            return
        queue, settings = self._state.queue, self._state.settings
        key = (tier, task.tenant)
        in_tier = queue.waiting_by_tier.get(tier, 0) + self._tiers.get(tier, 0)
        of_tenant = queue.waiting_by_tenant.get(tier, {}).get(task.tenant, 0) + self._tenants.get(key, 0)
        if in_tier >= settings.tier(tier).queue_max:
            self._refuse(f"tier `{tier}` is full: {in_tier} groups wait in it")
        if of_tenant >= tenant_queue_max(settings, tier, task.tenant):
            self._refuse(
                f"tenant `{task.tenant}` has {of_tenant} groups waiting in tier `{tier}`, which is its share of it"
            )
        self._tiers[tier] = self._tiers.get(tier, 0) + 1
        self._tenants[key] = self._tenants.get(key, 0) + 1

    def _refuse(self, why: str) -> None:
        raise Overloaded(f"{why}; submit again later", retry_after_s(self._state, self._now_s))
