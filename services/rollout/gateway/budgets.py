"""An execution that has used up a limit ends, whatever its harness makes of the refusal."""

from services.rollout.core.keys import Claims
from services.rollout.gateway.environments import Environments
from services.rollout.gateway.leasing import Leasing
from services.rollout.gateway.messages import limit_reached


class Budgets:
    """Tells the environment to stop and to score what is there."""

    def __init__(self, leasing: Leasing, environments: Environments) -> None:
        self._leasing, self._environments = leasing, environments

    def over(self, claims: Claims, limit: str) -> None:
        """`limit` is the reason of its ending. Said at each call that is refused: to hear it again changes nothing."""
        lease = self._leasing.lease(claims.execution_id)
        if lease is not None and lease.attempt == claims.attempt and lease.started_s is not None:
            self._environments.send(lease.instance_id, limit_reached(claims.execution_id, claims.attempt, limit))
