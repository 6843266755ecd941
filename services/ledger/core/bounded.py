"""How many series a page of metrics may have: labels whose values other people choose take a bounded number of them, the first that are seen.

Task types, tenants and names of metrics are anybody's to invent, one for each task if they like; every one of them would be a series of each
instrument that has it, rendered at each scrape, for as long as the ledger lives.
"""

VALUES_MAX = {"task_type": 100, "tenant": 100, "metric": 500}
"""Of a label that is not from a short list of ours."""
PAIRS_MAX = 200
"""Of a task type and a tenant together: most task types have one tenant."""
OTHER = "other"


class BoundedLabels:
    """Label values as they are shown. Not for several threads at once."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {name: set() for name in VALUES_MAX}
        self._pairs: set[tuple[str, str]] = set()

    def shown(self, labels: dict[str, str]) -> dict[str, str]:
        """The same labels; OTHER where a value came after as many others as are kept apart."""
        found = {name: self._value(name, value) if name in VALUES_MAX else value for name, value in labels.items()}
        if "task_type" in found and "tenant" in found:
            pair = found["task_type"], found["tenant"]
            if pair not in self._pairs:
                if len(self._pairs) >= PAIRS_MAX:
                    return {**found, "task_type": OTHER, "tenant": OTHER}
                self._pairs.add(pair)
        return found

    def _value(self, name: str, value: str) -> str:
        known = self._known[name]
        if value not in known:
            if len(known) >= VALUES_MAX[name]:
                return OTHER
            known.add(value)
        return value
