"""Groups that wait to be dispatched, and who goes next (C1).

    tenant: least served first (work / weight)  →  class  →  longest predicted group first  →  first come

A group's *class* is its tier's index + ⌊submitted_at / aging_s⌋: it never changes, so nothing is ever sorted again, and a group is overtaken only by
what was submitted before it or within (number of tiers) · aging_s after it (docs/staleness.md). Groups that only differ in when they came
share a *lane*; a lane is a heap by time, so its head has its lowest class, and only heads have to be compared, with predictions as they are
now. Adding and removing costs O(log n) in the groups, choosing k costs O(k · log n + lanes).
"""

import heapq
import math
from collections.abc import Iterator

import msgspec

from services.scheduler.core.estimate import Estimate, predicted_group_s, predicted_s
from services.scheduler.core.groups import Group
from services.scheduler.core.settings import Settings

Arrival = tuple[float, str]
"""(submitted_at_s, group id)"""
SPARE = 64
"""Entries of what is over that are not worth clearing away."""
TENANTS_MAX = 4096
"""Tenants whose share of the past is remembered beside those that wait: with a tenant for each task nobody competes, and all would be kept."""


class Lane(msgspec.Struct):
    """Waiting groups of one tenant, tier, task type and size, as a heap; those that left otherwise are skipped when they come up."""

    tenant: str
    tier: str
    task_type: str
    size: int
    heap: list[Arrival] = []


class Queue(msgspec.Struct):
    """Waiting train groups."""

    groups: dict[str, Group] = {}
    lanes: dict[str, Lane] = {}
    arrivals: list[Arrival] = []
    """A heap of all of them: the oldest is its head."""
    waiting_by_tier: dict[str, int] = {}
    waiting_by_tenant: dict[str, dict[str, int]] = {}
    """Tier → tenant → groups; a tenant without any is not in it."""
    served: dict[str, float] = {}
    """Tenant → its virtual time: predicted execution-seconds dispatched, by weight."""
    virtual_s: float = 0.0
    """Virtual time of the tenant that was served last. Who was held back by a cap goes on from here, who comes (back) from idleness as if it had been
    sent its first group already: nobody saves up a claim, and ever new tenants do not stop the time of those who wait."""

    def __len__(self) -> int:
        return len(self.groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self.groups

    @property
    def oldest_s(self) -> float | None:
        """When the group was submitted that waits longest."""
        return self.arrivals[0][0] if self.arrivals else None

    def push(self, group: Group, settings: Settings, estimates: dict[str, Estimate]) -> None:
        task = group.task
        key = f"{task.tenant} {group.tier} {group.size} {task.task_type}"
        lane = self.lanes.get(key)
        if lane is None:
            waiting = {other.tenant for other in self.lanes.values()}
            if task.tenant not in waiting:
                newly_s = self.virtual_s + work_s(group, settings, estimates)
                self.served[task.tenant] = max(newly_s, self.served.get(task.tenant, 0.0))
                self._forget_idle({task.tenant, *waiting})
            lane = self.lanes[key] = Lane(task.tenant, group.tier, task.task_type, group.size)
        self.groups[group.group_id] = group
        heapq.heappush(lane.heap, (group.submitted_at_s, group.group_id))
        heapq.heappush(self.arrivals, (group.submitted_at_s, group.group_id))
        self._count(group, 1)

    def remove(self, group_id: str) -> Group | None:
        """Take a group out, wherever it stands; None when it does not wait here."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return None
        self._count(group, -1)
        self._skip_gone(self.arrivals)
        if len(self.arrivals) > 2 * len(self.groups) + SPARE:  # one that waits for long holds all that went before it
            self.arrivals = [(one.submitted_at_s, name) for name, one in self.groups.items()]
            heapq.heapify(self.arrivals)
        key = f"{group.task.tenant} {group.tier} {group.size} {group.task.task_type}"
        self._skip_gone(self.lanes[key].heap)
        if not self.lanes[key].heap:
            del self.lanes[key]
        return group

    def charge(self, group: Group, settings: Settings, estimates: dict[str, Estimate]) -> None:
        """Its tenant was served: virtual time goes on by the predicted work."""
        tenant = group.task.tenant
        self.virtual_s = self.start_s(tenant)
        self.served[tenant] = self.virtual_s + work_s(group, settings, estimates)

    def start_s(self, tenant: str) -> float:
        """Where its next group starts. Who is behind all that were served was held back by its tiers' caps, and has no claim on what they were
        sent meanwhile."""
        return max(self.virtual_s, self.served.get(tenant, 0.0))

    def _count(self, group: Group, by: int) -> None:
        self.waiting_by_tier[group.tier] = self.waiting_by_tier.get(group.tier, 0) + by
        tenants = self.waiting_by_tenant.setdefault(group.tier, {})
        tenants[group.task.tenant] = tenants.get(group.task.tenant, 0) + by
        if not tenants[group.task.tenant]:
            del tenants[group.task.tenant]

    def _forget_idle(self, waiting: set[str]) -> None:
        """Beyond TENANTS_MAX the half of those for whom nothing waits that lose least by it: their virtual time has passed, or nearly."""
        if len(self.served) > TENANTS_MAX + len(waiting):
            idle = sorted(self.served.keys() - waiting, key=lambda tenant: (self.served[tenant], tenant))
            for tenant in idle[: len(idle) // 2]:
                del self.served[tenant]

    def _skip_gone(self, heap: list[Arrival]) -> None:
        while heap and heap[0][1] not in self.groups:
            heapq.heappop(heap)


def work_s(group: Group, settings: Settings, estimates: dict[str, Estimate]) -> float:
    """Predicted execution-seconds of a group by its tenant's weight."""
    one_s = predicted_s(estimates, group.task.task_type, group.task.limits.wall_s)
    return group.size * one_s / settings.weight(group.task.tenant)


def promotions(group: Group, settings: Settings, now_s: float) -> int:
    """Classes by which waiting has raised the group against one of its tier that is submitted now."""
    return max(0, math.floor(now_s / settings.aging_s) - math.floor(group.submitted_at_s / settings.aging_s))


class Selection:
    """Walks through the queue in order, without changing it. `refuse` a group's lane when it cannot go now; `take` it otherwise."""

    def __init__(self, queue: Queue, settings: Settings, estimates: dict[str, Estimate], order: str) -> None:
        self._queue, self._settings, self._estimates, self._order = queue, settings, estimates, order
        self._lanes: dict[str, list] = {}
        for key, lane in queue.lanes.items():
            if (entry := self._entry(key, lane, _ascending(lane.heap))) is not None:
                self._lanes.setdefault(lane.tenant, []).append(entry)
        for entries in self._lanes.values():
            heapq.heapify(entries)
        self._tenants = [(queue.start_s(tenant), tenant) for tenant in self._lanes]
        heapq.heapify(self._tenants)

    def __iter__(self) -> Iterator[Group]:
        while self._tenants:
            yield self._lanes[self._tenants[0][1]][0][-1]

    def take(self) -> None:
        """The group that was just yielded goes: its lane shows the next, its tenant is charged."""
        served, tenant = self._tenants[0]
        entries = self._lanes[tenant]
        *_, key, rest, group = entries[0]
        following = self._entry(key, self._queue.lanes[key], rest)
        if following is None:
            heapq.heappop(entries)
        else:
            heapq.heapreplace(entries, following)
        self._show(tenant, served + work_s(group, self._settings, self._estimates))

    def refuse(self) -> None:
        """The group that was just yielded cannot go now, and so nothing of its lane."""
        served, tenant = self._tenants[0]
        heapq.heappop(self._lanes[tenant])
        self._show(tenant, served)

    def _show(self, tenant: str, served: float) -> None:
        if self._lanes[tenant]:
            heapq.heapreplace(self._tenants, (served, tenant))
        else:
            heapq.heappop(self._tenants)

    def _entry(self, key: str, lane: Lane, rest: Iterator[Arrival]) -> tuple | None:
        """(class, −predicted, arrival, lane, its other groups, group): arrivals differ, so no comparison goes further."""
        for arrival in rest:
            group = self._queue.groups.get(arrival[1])
            if group is None:
                continue
            rank = self._settings.tier_index(lane.tier) + math.floor(arrival[0] / self._settings.aging_s)
            predicted = 0.0
            if self._order == "longest_first":
                predicted = predicted_group_s(self._estimates, lane.task_type, group.task.limits.wall_s, lane.size)
            return rank, -predicted, arrival, key, rest, group
        return None


def _ascending(heap: list[Arrival]) -> Iterator[Arrival]:
    """A heap's items in order, each at O(log k) for the k seen so far; the heap stays as it is."""
    frontier = [(heap[0], 0)] if heap else []
    while frontier:
        item, index = heapq.heappop(frontier)
        for child in (2 * index + 1, 2 * index + 2):
            if child < len(heap):
                heapq.heappush(frontier, (heap[child], child))
        yield item
