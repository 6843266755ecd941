"""What each kept token's loss is multiplied by before it is summed; the rest of the norm is the batch's divisor (core/divisor.py).

    execution   1 / kept targets of its sample     ÷ executions          every execution has the same say (B7)
    token       1                                  ÷ kept targets        every token has the same say (DAPO, arXiv 2503.14476, eq. 8)
    sequence    1 / kept targets of its sequence   ÷ kept sequences      every call has the same say (GRPO, arXiv 2402.03300, eq. 3)
    constant    1                                  ÷ executions · C      long executions have more say, and no length is rewarded (Dr. GRPO,
                                                                         arXiv 2503.20783, section 3.2; C is config.norm_constant)
Both parts are fixed by what the corrections keep of the whole sample and the whole batch, never by rows, micro-steps or cells.
"""

import torch

from services.trainer.losses.targets import Targets, sequence_lengths


def shares(norm: str, kept: Targets, counts_M: torch.Tensor) -> torch.Tensor:
    """float32[N] for the kept targets; `counts_M` is how many are kept of each whole sample."""
    if norm == "execution":
        return 1.0 / counts_M.to(kept.behaviour_N)[kept.samples_N]
    if norm == "sequence":
        return 1.0 / sequence_lengths(kept)[kept.sequences_N]
    return torch.ones_like(kept.behaviour_N)
