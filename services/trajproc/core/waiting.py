"""Groups in order of age, oldest dispatch version first: kept in order as they come and go, since every fact may ask for the oldest."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from services.trajproc.core.state import Group

Age = tuple[int, int]


class ByAge:
    """A set of dispatched groups. A group leaves before its age changes (it is sent again)."""

    def __init__(self) -> None:
        self._ages: list[Age] = []
        self._groups: dict[Age, Group] = {}

    def __len__(self) -> int:
        return len(self._ages)

    def __iter__(self) -> Iterator[Group]:
        """Oldest first, of those that were there when it was asked for."""
        return map(self._groups.__getitem__, tuple(self._ages))

    def __getitem__(self, place: int) -> Group:
        return self._groups[self._ages[place]]

    def __contains__(self, group: Group) -> bool:
        return self._groups.get(group.age_key) is group

    def add(self, group: Group) -> None:
        if group.age_key not in self._groups:
            insort(self._ages, group.age_key)
            self._groups[group.age_key] = group

    def discard(self, group: Group) -> None:
        if group in self:
            del self._groups[group.age_key]
            del self._ages[bisect_left(self._ages, group.age_key)]

    def has_version(self, policy_version: int) -> bool:
        """Whether a group was dispatched under this version."""
        at = bisect_left(self._ages, (policy_version,))
        return at < len(self._ages) and self._ages[at][0] == policy_version
