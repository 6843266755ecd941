"""What was commanded of executions, and what came of it (C2): the fold of commands and of their effects.

    suspend ─▶ ExecutionSuspended, once it has started; what is not leased is not given out
    resume  ─▶ ExecutionResumed; what is not leased is given out again
    truncate ─▶ ExecutionEnded(timed_out, truncated); voided where nothing was begun that could be scored
    void    ─▶ ExecutionEnded(voided)
    release ─▶ ExecutionLeased, the next attempt

The newest command of an execution is what stands; an older one that was overtaken before it was carried out counts no longer. Memory is
bounded by unfinished executions that were ever commanded.
"""

from dataclasses import dataclass

from gyre.records import (
    ExecutionCommanded,
    ExecutionEnded,
    ExecutionLeased,
    ExecutionResumed,
    ExecutionSuspended,
)


@dataclass(slots=True)
class Order:
    """The standing command of one execution."""

    execution_id: str
    group_id: str
    ordinal: int = 0
    command: str = ""
    reason: str = ""
    done: int = 0
    """Newest ordinal whose effect is on record."""
    releases: int = 0
    """Commanded releases: attempts that nobody lost."""
    attempt: int = 0
    """Attempt that the next two are about."""
    suspended_at_s: float | None = None
    paused_s: float = 0.0
    """Seconds for which it was suspended, up to `suspended_at_s`."""

    @property
    def is_held(self) -> bool:
        """It is not to go on."""
        return self.command == "suspend"


class Orders:
    """All executions that were commanded and have not ended."""

    def __init__(self) -> None:
        self._orders: dict[str, Order] = {}

    def get(self, execution_id: str) -> Order | None:
        return self._orders.get(execution_id)

    def is_held(self, execution_id: str) -> bool:
        order = self._orders.get(execution_id)
        return order is not None and order.is_held

    def is_to_end(self, execution_id: str) -> bool:
        """Voided or truncated: it is not given out any more."""
        order = self._orders.get(execution_id)
        return order is not None and order.command in ("void", "truncate")

    def releases(self, execution_id: str) -> int:
        order = self._orders.get(execution_id)
        return order.releases if order else 0

    def outstanding(self) -> list[str]:
        """Executions whose newest command has had no effect yet."""
        return [name for name, order in self._orders.items() if order.done < order.ordinal]

    def held(self) -> list[str]:
        return [name for name, order in self._orders.items() if order.is_held]

    def paused_s(self, execution_id: str, attempt: int, now_s: float) -> float:
        """Seconds of this attempt for which it was suspended."""
        order = self._orders.get(execution_id)
        if order is None or order.attempt != attempt:
            return 0.0
        return order.paused_s + (now_s - order.suspended_at_s if order.suspended_at_s is not None else 0.0)

    def apply(self, fact: object) -> bool:
        """Fold a fact; whether it was a command not known before."""
        match fact:
            case ExecutionCommanded():
                return self._command(fact)
            case ExecutionSuspended() if (order := self._orders.get(fact.execution_id)) is not None:
                order.done = max(order.done, fact.ordinal)
                if fact.attempt != order.attempt:
                    order.attempt, order.paused_s, order.suspended_at_s = fact.attempt, 0.0, None
                if order.suspended_at_s is None:
                    order.suspended_at_s = fact.at_s
            case ExecutionResumed() if (order := self._orders.get(fact.execution_id)) is not None:
                order.done = max(order.done, fact.ordinal)
                if fact.attempt == order.attempt and order.suspended_at_s is not None:
                    order.paused_s += fact.at_s - order.suspended_at_s
                    order.suspended_at_s = None
            case ExecutionLeased() if (order := self._orders.get(fact.execution_id)) is not None:
                if order.command in ("release", "resume"):
                    order.done = order.ordinal
            case ExecutionEnded():
                self._orders.pop(fact.execution_id, None)
        return False

    def _command(self, fact: ExecutionCommanded) -> bool:
        order = self._orders.setdefault(fact.execution_id, Order(fact.execution_id, fact.group_id))
        if fact.ordinal <= order.ordinal:
            return False
        order.ordinal, order.command, order.reason = fact.ordinal, fact.command, fact.reason
        order.releases += fact.command == "release"
        return True
