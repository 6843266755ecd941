"""Claims on micro-steps."""

import numpy as np

from gyre.bus import BlobStore
from gyre.records import MicroStep, Row, pack
from gyre.records.codec import encode_rows
from services.trainer.claims import Claims


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
    assert Claims(None, blobs, claim_s=1.0)._with_rows(micro).rows == [row]
