"""A base URL that names its execution: for clients that are given no key, or send one of their own.

    http://host:port/key/<the execution's key>/v1/chat/completions

Who is asked takes the key out at the door: nothing behind it, no log, record or error, then has a path with a key in it.
"""

import re
from urllib.parse import unquote

from yarl import URL

_KEYED = re.compile(r"/+key/+(?P<key>[^/]+)/*(?P<rest>.*)", re.DOTALL)
_IN_TEXT = re.compile(r"(/key/+)[^/\s'\"]+")


def with_key(url: str, key: str) -> str:
    """`url`, which ends with `/v1` or does not, and so does what is answered."""
    base = url.rstrip("/")
    version = "/v1" if base.endswith("/v1") else ""
    return f"{base.removesuffix(version)}/key/{key}{version}"


def apart(url: URL) -> tuple[str, URL]:
    """The key that a request's URL has, empty where it has none, and its path and query without it."""
    if (found := _KEYED.fullmatch(url.raw_path)) is None:
        return "", url
    rest = URL.build(path=f"/{found['rest']}", query_string=url.raw_query_string, encoded=True)
    return unquote(found["key"]), rest


def masked(text: str) -> str:
    """A text that may quote such a URL, without its key."""
    return _IN_TEXT.sub(r"\1…", text)
