"""Paths of the gateway (B1): one URL is given to clients that differ in what they put behind it."""

import pytest

from services.rollout.gateway.paths import METHODS, place_of


@pytest.mark.parametrize("base", ["/", "/v1/", "/v1/v1/", "//", "//v1/", "/v1//v1//"])
@pytest.mark.parametrize("place", [place for place in METHODS if place not in ("", "healthz", "model")])
def test_a_place_is_found_behind_every_base_and_with_a_slash_at_its_end(base, place):
    assert place_of(f"{base}{place}") == (place, "") == place_of(f"{base}{place}/")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", ("", "")),
        ("/healthz", ("healthz", "")),
        ("/v1/models/a/b c", ("model", "a/b c")),
        ("/models/é", ("model", "é")),
    ],
)
def test_other_places(path, place):
    assert place_of(path) == place


@pytest.mark.parametrize(
    "path", ["", "messages", "/v1", "/v1/", "/v1/v1/v1/messages", "/v1/messages/x", "/v1/messagesx", "/x/messages", "/v1/messages//", "/v1/models\n"],
)  # fmt: skip
def test_what_is_no_place(path):
    assert place_of(path) is None
