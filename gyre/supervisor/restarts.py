"""When a dead process comes back, and when it has died too often."""

from dataclasses import dataclass, field

RESTARTS_PER_MINUTE_MAX = 5
"""More deaths than this within a minute are no accident: the run has failed."""
START_RESTARTS_MAX = 1
"""A process that never was up gets one more try: what is wrong with it is seldom an accident."""
ANY_NUMBER = 1_000_000
"""Of an environment that was attached: what ends it are its executions, each of which has its own attempts, and no run fails through them."""
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0
WINDOW_S = 60.0


def restarts_max(is_first_start: bool, was_attached: bool) -> int:
    """In a minute. `is_first_start`: of a service that was never up."""
    if was_attached:
        return ANY_NUMBER
    return START_RESTARTS_MAX if is_first_start else RESTARTS_PER_MINUTE_MAX


@dataclass
class RestartPolicy:
    """Deaths of one process within the last minute."""

    died_at_s: list[float] = field(default_factory=list)

    def after_death(self, now_s: float, restarts_max: int = RESTARTS_PER_MINUTE_MAX) -> float | None:
        """Seconds to wait before the next start, or None when there should be none."""
        self.died_at_s = [at for at in self.died_at_s if now_s - at < WINDOW_S] + [now_s]
        deaths = len(self.died_at_s)
        if deaths > restarts_max:
            return None
        return min(BACKOFF_FIRST_S * 2 ** min(deaths - 1, 10), BACKOFF_MAX_S)
