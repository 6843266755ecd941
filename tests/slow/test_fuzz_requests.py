"""Ten thousand malformed and odd requests against the gateway's HTTP side (B1)."""

import pytest

from examples.repair.model import make_tokenizer
from services.rollout.core.session import Model
from services.rollout.core.template import ChatTemplate
from tests.unit.rollout.bombard import check
from tests.unit.rollout.conftest import texts


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(texts(), 600).save_pretrained(folder)
    return Model(ChatTemplate.load(folder))


@pytest.mark.slow
async def test_ten_thousand_odd_requests_harm_nobody(model, caplog):
    """No 5xx but 503, nothing of one session in the other's replies and records, and what is right is still served."""
    counts = (await check(model, 2, 10_000, caplog)).statuses
    assert sum(counts.values()) >= 10_000
