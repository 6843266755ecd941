"""What the summed gradient of a batch is divided by (B7): the second half of a norm; the first is losses/norms.py.

Known only when the batch is complete, and then from sums over its samples, so it is the same whichever cells, rows and micro-steps took part.
"""

from collections.abc import Mapping

from services.trainer.core.events import Batch


def divisor(norm: str, norm_constant: float, batch: Batch, by_sample: Mapping[str, Mapping[str, float]]) -> float:
    """At least 1, so that an empty batch gives its zero gradient back. `by_sample`: what was seen of each trained sample, summed.

    execution   executions of the batch, those without gradient too, but not those of which the corrections kept no target: a mean over no
                token is no mean, and corrections come before denominators
    token       kept targets, and the targets of executions without gradient: their loss is 0, not absent
    sequence    kept sequences, likewise
    constant    executions · norm_constant, whatever was kept: that it depends on nothing is its point
    """
    if norm == "token":
        counted = _total(by_sample, "kept") + batch.untrained_targets
    elif norm == "sequence":
        counted = _total(by_sample, "kept_sequences") + batch.untrained_sequences
    elif norm == "constant":
        counted = batch.divisor * norm_constant
    else:
        rejected = [sums for sums in by_sample.values() if sums.get("targets") and not sums.get("kept")]
        counted = batch.divisor - len(rejected)
    return max(1.0, float(counted))


def _total(by_sample: Mapping[str, Mapping[str, float]], key: str) -> float:
    return sum(sums.get(key, 0.0) for sums in by_sample.values())
