"""Small arithmetic of steps: the learning rate, batches of similar length."""

from collections.abc import Sequence


def learning_rate(step: int, lr: float, warmup_steps: int, steps: int = 0, final_share: float = 1.0) -> float:
    """Rate of `step` (from 0): linear over `warmup_steps`, then linear down to `final_share` of `lr` at the last of `steps`."""
    if step < warmup_steps:
        return lr * (step + 1) / warmup_steps
    span = steps - 1 - warmup_steps
    done = min(1.0, (step - warmup_steps) / span) if span > 0 else 0.0
    return lr * (1.0 - (1.0 - final_share) * done)


def ess_factor(ess: float, ess_min: float) -> float:
    """What the step size is multiplied by: √(ess / ess_min) below the line, else 1 (C8). A gradient whose weights are worth a share `ess` of its
    tokens has 1/ess times the variance, so its noise is brought back to what it is at the line."""
    return (ess / ess_min) ** 0.5 if ess < ess_min else 1.0


def batches_by_length(lengths: Sequence[int], tokens_max: int) -> list[list[int]]:
    """Row indices in padded batches of at most `tokens_max` tokens, padding included, longest first.

    Each row is in exactly one; a row longer than the budget is a batch of its own.
    """
    found: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if found and lengths[found[-1][0]] * (len(found[-1]) + 1) <= tokens_max:
            found[-1].append(index)
        else:
            found.append([index])
    return found
