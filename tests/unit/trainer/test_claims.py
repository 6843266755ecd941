"""Claims on micro-steps."""

import numpy as np
import pytest

from gyre.bus import BlobStore
from gyre.records import MicroStep, Row, pack
from gyre.records.codec import encode_rows
from services.trainer.begun import Begun
from services.trainer.claimant import Claimant
from services.trainer.claims import Claims
from services.trainer.core.events import Verdict


def _row(length: int) -> Row:
    ones = np.ones(length)
    return Row(
        sample_id="g000001-e0-a1", part=0, tokens=pack(ones, "int32"), run_lengths=pack([length], "int32"),
        run_parents=pack([-1], "int32"), sequences=pack(ones, "int32"), logprobs=pack(-ones, "float32"),
        versions=pack(ones, "int32"), advantages=pack(ones, "float32"), temperatures=pack(ones, "float32"),
    )  # fmt: skip


def test_rows_that_were_too_large_for_the_bus_are_trained_all_the_same(tmp_path):
    """B6: a micro-step whose rows lie in the blob store must not train nothing, silently."""
    blobs = BlobStore(tmp_path)
    row = _row(5)
    micro = MicroStep(
        micro_id="m", step=0, group_id="g000001", rows=[], tokens=5, at_s=0.0, blob=blobs.put(encode_rows([row]))
    )
    assert Claims(None, blobs, claim_s=1.0).with_rows(micro).rows == [row]


@pytest.mark.parametrize("verdict", [Verdict.DISCARD, Verdict.PASS])
async def test_rows_are_read_only_when_the_core_wants_them_computed(tmp_path, verdict):
    """A repeat of what was trained long ago comes when its blob is gone: it is discarded (or handed back), and the cell lives."""
    settled: list[str] = []

    class Held(Claims):
        async def discard(self, micro_id: str) -> None:
            settled.append(micro_id)

        async def hand_back(self, micro_id: str, delay_s: float = 0.0) -> None:
            settled.append(micro_id)

    async def ask(_micro: MicroStep) -> Verdict:
        return verdict

    gone = MicroStep(micro_id="m", step=0, group_id="g000001", rows=[], tokens=5, at_s=0.0, blob="0" * 64)
    await Claimant(Held(None, BlobStore(tmp_path), 1.0), None, Begun(tmp_path / "begun"), 1.0, ask, None)._settle(gone)
    assert settled == ["m"]
