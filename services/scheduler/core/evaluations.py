"""Groups that are only evaluated: they wait for no boundary, and never hold training up for long (C1).

    unfinished at once                       ≤ E = `evaluation_concurrency_max`
    sent between two boundaries              ≤ E while there is something to train

So what a burst's cells have to wait for is bounded, whoever submits how much: its train groups and 2·E executions. A group larger than E goes alone.
Tenants are served by what they have unfinished, by weight; a tenant's groups in the order in which they came. Choosing k of them costs
O((tenants + k) · log tenants), and nothing where there is no room.
"""

import heapq

import msgspec

from services.scheduler.core.groups import Group
from services.scheduler.core.settings import Settings


class Evaluations(msgspec.Struct):
    """Those that wait, and what each tenant has."""

    groups: dict[str, Group] = {}
    """Waiting, in the order in which they came."""
    waiting: dict[str, dict[str, int]] = {}
    """Tenant → its waiting groups, in order → executions."""
    num_waiting: int = 0
    """Executions."""
    unfinished: dict[str, int] = {}
    """Tenant → executions that were sent and have not ended."""
    num_unfinished: int = 0
    waiting_of: dict[str, int] = {}
    """Tenant → executions of its waiting groups."""
    sent: int = 0
    """Executions since the last boundary."""

    def __len__(self) -> int:
        return len(self.groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self.groups

    @property
    def oldest_s(self) -> float:
        """When the group was submitted that waits longest: the first that came. Some group waits."""
        return next(iter(self.groups.values())).submitted_at_s

    @property
    def num_held(self) -> int:
        """Of all tenants."""
        return self.num_waiting + self.num_unfinished

    def push(self, group: Group) -> None:
        self.groups[group.group_id] = group
        self.waiting.setdefault(group.task.tenant, {})[group.group_id] = group.size
        self._wait(group, group.size)

    def remove(self, group_id: str) -> Group | None:
        """Take a group out; None when it does not wait here."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return None
        mine = self.waiting[group.task.tenant]
        del mine[group_id]
        if not mine:
            del self.waiting[group.task.tenant]
        self._wait(group, -group.size)
        return group

    def dispatched(self, group: Group) -> None:
        """Its executions exist."""
        self.sent += group.num_active
        self.changed(group, group.num_active)

    def changed(self, group: Group, active: int) -> None:
        """So many more of its executions are unfinished."""
        self.num_unfinished += active
        _add(self.unfinished, group.task.tenant, active)

    def room(self, settings: Settings, is_training: bool) -> int:
        """Executions that may be sent now; `is_training`: there is something to train, so that a burst's bound holds."""
        used = max(self.num_unfinished, self.sent) if is_training else self.num_unfinished
        return settings.evaluation_concurrency_max - used

    def due(self, settings: Settings, is_training: bool) -> list[Group]:
        """Groups to be sent now."""
        room = self.room(settings, is_training)
        if not self.groups or room <= 0:
            return []
        is_unused = room == settings.evaluation_concurrency_max
        following = {tenant: iter(mine) for tenant, mine in self.waiting.items()}
        line = [
            (self.unfinished.get(tenant, 0) / settings.weight(tenant), self._arrival(next(names)), tenant)
            for tenant, names in following.items()
        ]
        heapq.heapify(line)
        chosen: list[Group] = []
        while line:
            load, (_, name), tenant = line[0]
            group = self.groups[name]
            if group.size > room and not (is_unused and not chosen):
                break  # whoever is next waits for room: smaller ones that passed it by would keep it waiting for ever
            chosen.append(group)
            room -= group.size
            if (name := next(following[tenant], "")) == "":
                heapq.heappop(line)
            else:
                heapq.heapreplace(line, (load + group.size / settings.weight(tenant), self._arrival(name), tenant))
        return chosen

    def _arrival(self, name: str) -> tuple[float, str]:
        """Where loads are equal the first that came goes first: a large group, for which all must have ended, has its turn so."""
        return self.groups[name].submitted_at_s, name

    def _wait(self, group: Group, by: int) -> None:
        self.num_waiting += by
        _add(self.waiting_of, group.task.tenant, by)


def _add(counts: dict[str, int], tenant: str, by: int) -> None:
    """A tenant without any is not in it."""
    counts[tenant] = counts.get(tenant, 0) + by
    if not counts[tenant]:
        del counts[tenant]
