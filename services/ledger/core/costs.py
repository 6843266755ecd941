"""How a call's tokens and a step's training seconds are shared out, for the bill (C12)."""

from operator import itemgetter
from typing import Any

import numpy as np

from gyre import records as r

UNKNOWN = -1
"""Version of tokens whose record does not say which weights sampled them, and of calls without a token."""


def by_version(versions: np.ndarray, tokens: int) -> dict[int, int]:
    """Weight version → how many of the call's `tokens` it sampled; they add up to `tokens`, also for an unsound record.

    versions: int32[T]. A call without tokens is {UNKNOWN: 0}.
    """
    if versions.size == tokens > 0 and versions[0] >= 0 and (versions == versions[0]).all():
        return {int(versions[0]): tokens}  # nearly every call
    known = np.maximum(versions[:tokens], UNKNOWN)
    counts = {int(version): int(count) for version, count in zip(*np.unique(known, return_counts=True), strict=True)}
    if known.size < tokens or not tokens:
        counts[UNKNOWN] = counts.get(UNKNOWN, 0) + tokens - known.size
    return counts


def added_up(rows: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    """Rows of a table of running totals, all with the same columns: one for each key, numbers summed. A transaction's calls are of few attempts."""
    key_of = itemgetter(*keys)
    numbers = [name for name, value in rows[0].items() if name not in keys and not isinstance(value, str)]
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        kept = sums.setdefault(key_of(row), row)
        if kept is not row:
            for name in numbers:
                kept[name] += row[name]
    return list(sums.values())


def training_shares(fact: r.StepUpdated) -> dict[str, dict[str, float]]:
    """Sample → `targets` and `compute_s`: the step's training seconds by tokens that were computed for it, replays of the elite store included.

    Where nothing says how many tokens (emulated training) all samples of the batch have the same share.
    """
    tokens = dict.fromkeys(fact.sample_ids, 0.0)
    tokens |= {sample: seen.get("tokens", 0.0) for sample, seen in fact.sample_metrics.items()}
    total = sum(tokens.values())
    if not total:
        tokens = dict.fromkeys(fact.sample_ids, 1.0)
        total = float(len(tokens))
    compute_s = fact.metrics.get("compute_s", 0.0)
    return {
        sample: {
            "targets": int(fact.sample_metrics.get(sample, {}).get("targets", 0)),
            "compute_s": compute_s * count / total if total else 0.0,
        }
        for sample, count in tokens.items()
    }
