"""What a micro-step made of single tokens, sample by sample, for the run's token log (C8)."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch

from gyre.records import Row
from gyre.token_log import CLIPPED, KEPT, TokensSeen, tokens_seen
from services.trainer.packed.forest import joined

Told = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Given log-probabilities, kept and clipped of the N targets of one forward."""


class Collected:
    """Filled forward by forward; a sample may be spread over several."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {}

    def of(self, rows: Sequence[Row]) -> Told:
        """What takes down one forward over `rows`."""
        calls_T = joined(rows, "sequences", "int32")
        rows_T = np.repeat(np.arange(len(rows)), [row.length for row in rows])
        calls_N, rows_N = calls_T[calls_T >= 0], rows_T[calls_T >= 0]

        def told(logp_N: torch.Tensor, keep_N: torch.Tensor, clipped_N: torch.Tensor) -> None:
            flags_N = KEPT * keep_N.cpu().numpy().astype("u1") + CLIPPED * clipped_N.cpu().numpy().astype("u1")
            table = np.stack([calls_N, logp_N.float().cpu().numpy(), flags_N])
            for index, row in enumerate(rows):
                self._parts.setdefault(row.sample_id, []).append(table[:, rows_N == index])

        return told

    def forget(self, samples: Iterable[str]) -> None:
        """What was told of these is not so: they are computed again, or refused."""
        for sample in samples:
            self._parts.pop(sample, None)

    def seen(self, step: int) -> list[tuple[str, TokensSeen]]:
        """Of each sample that had targets."""
        found = []
        for sample, parts in self._parts.items():
            calls_N, logprobs_N, flags_N = np.concatenate(parts, axis=1)
            if len(calls_N):
                found.append((sample, tokens_seen(step, calls_N.astype(np.int64), logprobs_N, flags_N)))
        return found
