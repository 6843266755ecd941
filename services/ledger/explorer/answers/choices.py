"""What filters can be set to in this run, for the session: {tenants, task_types, tiers, cells, steps, versions: [first, last]}."""

from typing import Any

import sqlalchemy as sa

from services.ledger.explorer.scope import Scope
from services.ledger.queries.sql import rows

CHOICES_MAX = 200
_GROUPS = "SELECT DISTINCT {column} AS name FROM groups g WHERE run = :run {narrow} ORDER BY name LIMIT :most"
_CELLS = "SELECT DISTINCT cell AS name FROM role_changes WHERE run = :run ORDER BY name LIMIT :most"
_STEPS = "SELECT min(step) AS first, max(step) AS last FROM steps WHERE run = :run AND updated_at_s IS NOT NULL"


def choices(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives; a tenant's session is told its own tenant, types and tiers only."""
    narrow, bound = ("", {}) if scope.is_operator else ("AND g.tenant = :tenant", {"tenant": scope.tenant})

    def names(query: str, **values: Any) -> list[str]:
        return [
            row["name"] for row in rows(connection, query, run=scope.run, most=CHOICES_MAX, **values) if row["name"]
        ]

    steps = rows(connection, _STEPS, run=scope.run)[0]
    return {
        **{
            f"{name}s": names(_GROUPS.format(column=name, narrow=narrow), **bound) for name in ("tenant", "task_type", "tier")
        },
        "cells": names(_CELLS),
        "steps": [steps["first"], steps["last"]],
    }  # fmt: skip
