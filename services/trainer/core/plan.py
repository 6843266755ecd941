"""Small arithmetic of steps: the learning rate, the effective sample share."""


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
