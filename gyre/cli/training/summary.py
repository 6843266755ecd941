"""The summary of a run. Pure: from the fold of the facts and what the ledger answered."""

from typing import Any

from gyre.cli.training.progress import Progress, Verdict, success_share
from gyre.config import Config
from gyre.config.staleness import law_steps


def summarize(
    config: Config,
    fingerprint: str,
    progress: Progress,
    before: list[Verdict],
    after: list[Verdict],
    audit: dict[str, bool],
    books: dict[str, Any],
    wall_s: dict[str, float],
) -> dict[str, Any]:
    """Shares are in [0, 1], times in seconds; None where nothing was measured."""
    staleness = progress.staleness_mean
    return {
        "run": config.run.name,
        "fingerprint": fingerprint,
        "success_before": _rounded(success_share(before)),
        "success_after": _rounded(success_share(after)),
        "evaluations": {
            "before": {"tasks": len(before), "failed": sum(v.failed for v in before)},
            "after": {"tasks": len(after), "failed": sum(v.failed for v in after)},
        },
        "steps": progress.steps,
        "role_changes": progress.role_changes,
        "role_change_s": progress.role_change_s,
        "mid_batch_joins": progress.mid_batch_joins,
        "staleness_mean": _rounded(staleness),
        "staleness_max": max((most for _, _, most in progress.staleness), default=None),
        "staleness_law": law_steps(config.scheduler),
        "dispatched": len(progress.dispatched),
        "trained": len(progress.trained_executions),
        "dropped": progress.drops,
        "in_flight": progress.in_flight,
        "turns": progress.turns,
        "tokens_sampled": progress.tokens_sampled,
        "endings": dict(sorted(progress.endings.items())),
        "alarms": dict(sorted(progress.alarms.items())),
        "audit": audit,
        "books": books,
        "wall_s": {name: round(seconds, 2) for name, seconds in wall_s.items()},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
