"""One sample: `queries.explain` of it, and what stands around it.

`sample` answers explain's page and

    group_samples [{sample, state, reward, advantage, dispatched, step}]   its group, attempts in order
    batch         {position, samples, cause, turns, truncated_share, staleness_mean, cell}      its place in the batch; null when in none
                  What a batch and a step are made of is every tenant's: a tenant's session is told null of it here and in `training`.
    segments      [{from_s, to_s, version}]                                stretches by serving version
    updates       [[version, at_s]], published [{version, at_s}]           what the policy did meanwhile
    spans         at most SPANS_MAX of its trace, each with `depth` (parents that are missing or form a circle count as none)
    spans_left_out
"""

from typing import Any

import sqlalchemy as sa

from gyre.errors import NotFound
from services.ledger.explorer.answers.attempts import details, newest, tenant_of
from services.ledger.explorer.answers.clock import policy_clock
from services.ledger.explorer.answers.segments import segments_of
from services.ledger.explorer.scope import Scope, alone
from services.ledger.queries import explain
from services.ledger.queries.sql import one
from services.ledger.queries.trace import spans

SPANS_MAX = 400
GROUP_MAX = 256

_PLACE = """
SELECT p.position, b.samples, b.groups, b.cause, b.turns, b.turns_target, b.truncated_share, b.staleness_mean, b.divisor
FROM batch_samples p JOIN batches b ON b.run = p.run AND b.step = p.step WHERE p.run = :run AND p.sample_id = :sample
"""
_OF_ALL = {
    "batch": ("position", "samples", "groups", "turns", "truncated_share", "staleness_mean", "divisor"),
    "training": ("batch_turns", "divisor", "step_metrics"),
}
"""Figures of a sample's page that are of all tenants together."""
_MICRO = "SELECT micro_id, cell FROM micro WHERE run = :run AND step = :step AND group_id = :group_id ORDER BY micro_id LIMIT 1"


def sample(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """The answer whose shape the module's docstring gives. Raises NotFound, also for another tenant's sample."""
    page = owned(connection, scope)
    clock = policy_clock(connection, scope.run)
    siblings = newest(connection, alone(scope, group=page["group"], purpose="all", limit=GROUP_MAX))
    batch = one(connection, _PLACE, run=scope.run, sample=scope.sample) or None
    if batch and page["training"]:
        batch |= one(connection, _MICRO, run=scope.run, step=page["training"]["step"], group_id=page["group"])
    found = spans(connection, scope.run, page["trace"]["trace_id"]) if page["trace"]["trace_id"] else []
    if not scope.is_operator:
        page["training"], batch = (
            _without(of, _OF_ALL[name]) for name, of in (("training", page["training"]), ("batch", batch))
        )
    return {
        **page,
        "group_samples": [
            {"sample": row.sample_id, "state": row.state, "reward": row.reward, "advantage": row.advantage, "dispatched": row.dispatched,
             "step": row.step}
            for row in sorted(details(connection, scope, siblings))
        ],
        "batch": batch,
        "segments": [
            {"from_s": begin, "to_s": end, "version": version}
            for begin, end, version in segments_of(connection, scope.run, [scope.sample]).of(0)
        ],
        "updates": list(map(list, zip(clock.versions.tolist(), clock.updated_at_s.tolist(), strict=True))),
        "published": clock.published, "now_s": clock.now_s,
        "spans": [{**span, "depth": depth} for span, depth in zip(found[:SPANS_MAX], depths(found)[:SPANS_MAX], strict=True)],
        "spans_left_out": max(0, len(found) - SPANS_MAX),
    }  # fmt: skip


def _without(figures: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    return figures and {name: None if name in names else value for name, value in figures.items()}


def owned(connection: sa.Connection, scope: Scope) -> dict[str, Any]:
    """Explain's page, where the session may see it. Raises NotFound: another's sample is answered as one that does not exist, and
    nothing near it is named."""
    try:
        page = explain(connection, scope.run, scope.sample)
    except NotFound as error:
        raise NotFound(str(error) if not scope.tenant else f"no sample {scope.sample} in this run") from error
    if scope.tenant and tenant_of(connection, scope.run, page["group"]) != scope.tenant:
        raise NotFound(f"no sample {scope.sample} in this run")
    return page


def depths(found: list[dict[str, Any]]) -> list[int]:
    """How many known parents each span has above it; a circle of parents is cut where it closes."""
    parents = {span["span_id"]: span["parent_id"] for span in found}
    known: dict[str, int] = {}
    for start in parents:
        chain: dict[str, None] = {}  # in order, and looked into at every span of it
        at = start
        while at in parents and at not in known and at not in chain:
            chain[at] = None
            at = parents[at]
        base = known.get(at, -1)
        for one_of in reversed(chain):
            base += 1
            known[one_of] = base
    return [known[span["span_id"]] for span in found]
