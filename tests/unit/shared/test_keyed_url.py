"""URLs with an execution's key in them (B1)."""

import pytest
from yarl import URL

from gyre.keyed_url import apart, masked, with_key

KEY = "gyre-aB_9-x.Y-_z"


def sent(target: str) -> URL:
    """As a server has it."""
    if not target.startswith("/"):
        return URL(target, encoded=True)
    path, _, query = target.partition("?")
    return URL.build(path=path, query_string=query, encoded=True)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", f"http://h:1/key/{KEY}"),
        ("http://h:1/", f"http://h:1/key/{KEY}"),
        ("http://h:1/v1", f"http://h:1/key/{KEY}/v1"),
        ("http://h:1/v1/", f"http://h:1/key/{KEY}/v1"),
        ("https://proxy/v1/gyre", f"https://proxy/v1/gyre/key/{KEY}"),
    ],
)
def test_a_key_stands_before_the_version(base, url):
    assert with_key(base, KEY) == url


@pytest.mark.parametrize("before", ["/key/", "//key//", "http://h:1/key/"])
@pytest.mark.parametrize("key", [KEY, KEY.replace("-", "%2D").replace(".", "%2e")])
@pytest.mark.parametrize(
    ("behind", "rest"),
    [
        ("", "/"),
        ("/", "/"),
        ("/v1/messages?beta=true&x=%2F", "/v1/messages?beta=true&x=%2F"),
        ("//v1//models/a%2Fb%20c", "/v1//models/a%2Fb%20c"),
        ("/?q", "/?q"),
    ],
)
def test_key_and_rest_are_told_apart(before, key, behind, rest):
    assert apart(sent(before + key + behind)) == (KEY, sent(rest))


@pytest.mark.parametrize(
    "url", ["/", "*", "", "/key", "/key/", "/v1/messages", f"/v1/key/{KEY}", f"/keys/{KEY}/v1", "/healthz"]
)
def test_other_urls_stay_as_they_are(url):
    assert apart(sent(url)) == ("", sent(url))


def test_a_text_is_told_without_them():
    said = f"cannot connect to http://h:1/key/{KEY}/v1/messages, nor to '//key//{KEY}'"
    assert masked(said) == "cannot connect to http://h:1/key/…/v1/messages, nor to '//key//…'"
