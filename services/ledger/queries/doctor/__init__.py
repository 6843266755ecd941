"""The six known illnesses of online training, each looked for in the books, with its evidence and its remedy (D13).

`doctor` answers:

    ill        names of illnesses found
    illnesses  [{illness, state, figure, evidence, alarms, remedy}], always all six
               state: ill; well; unknown (the books hold too little to tell, `figure` says of what)
               evidence: [{what, value, line, is_over}], what was measured beside the line from which on it is ill
               alarms: {kind: count} of the kinds that speak of this illness
               remedy: what to do, in the words of the configuration; also where it is well

An illness is found where a line is crossed and chance is ruled out at three standard errors; alarms alone make nobody ill, they are shown beside.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from gyre.config import Config
from services.ledger.queries.doctor.drift import drift
from services.ledger.queries.doctor.finding import Finding, Room
from services.ledger.queries.doctor.gaming import gaming
from services.ledger.queries.doctor.lag import lag
from services.ledger.queries.doctor.noise import noise
from services.ledger.queries.doctor.storage import storage
from services.ledger.queries.doctor.values import values
from services.ledger.queries.sql import rows

__all__ = ["ILLNESSES", "Room", "doctor"]

ILLNESSES: tuple[Callable[[sa.Connection, str, Config, Room], Finding], ...] = (
    drift,
    noise,
    gaming,
    values,
    storage,
    lag,
)

ALARMS = "SELECT kind, count(*) AS n FROM alarms WHERE run = :run GROUP BY kind"


def doctor(connection: sa.Connection, run: str, config: Config, room: Room | None = None) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. `room`: what is left where the books are kept."""
    raised = {row["kind"]: row["n"] for row in rows(connection, ALARMS, run=run)}
    found = [look(connection, run, config, room or Room()) for look in ILLNESSES]
    return {
        "ill": [one.illness for one in found if one.state == "ill"],
        "illnesses": [
            {**one.told(), "alarms": {kind: raised[kind] for kind in one.alarm_kinds if kind in raised}} for one in found
        ],
    }  # fmt: skip
