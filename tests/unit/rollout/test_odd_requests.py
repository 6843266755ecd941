"""Malformed and odd requests against the gateway's HTTP side (B1): tests/slow sends ten thousand."""

from random import Random

from .bombard import check
from .odd_requests import odd_request


async def test_odd_requests_are_answered_or_refused_in_their_dialects_form(model, caplog):
    """No 5xx but 503, nothing of one session in the other's replies and records, and what is right is still served."""
    await check(model, 1, 250, caplog)


def test_the_same_seed_gives_the_same_requests():
    assert [odd_request(Random(f"5/{i}"), "M") for i in range(30)] == [
        odd_request(Random(f"5/{i}"), "M") for i in range(30)
    ]
