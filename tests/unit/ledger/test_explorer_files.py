"""The explorer's static files: nothing vendored has been touched, nothing is fetched from elsewhere, no page forbids itself."""

import hashlib
import re
from pathlib import Path

import pytest

from services.ledger.explorer.server import STATIC


def vendored() -> list[tuple[str, str]]:
    return re.findall(
        r"^\| ([\w.-]+) \|.*\| ([0-9a-f]{64}) \|$", (STATIC / "vendor" / "VENDORED.md").read_text(), re.MULTILINE
    )


def test_vendored_files_are_as_published_and_all_of_them_are_listed():
    listed = dict(vendored())
    assert set(listed) == {path.name for path in (STATIC / "vendor").iterdir()} - {"VENDORED.md"}
    for name, digest in listed.items():
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest, name


def own_files() -> list[Path]:
    return sorted(path for path in STATIC.iterdir() if path.suffix in (".js", ".html", ".css"))


@pytest.mark.parametrize("path", own_files(), ids=lambda path: path.name)
def test_pages_hold_nothing_that_the_policy_would_forbid_and_fetch_nothing_from_elsewhere(path):
    text = path.read_text()
    assert not re.search(r"https?://", text.replace("http://www.w3.org", "")), "the explorer needs no network"
    assert "innerHTML" not in text and "eval(" not in text and "new Function" not in text
    if path.suffix == ".html":
        assert (
            not re.search(r"<script(?![^>]*src=)", text)
            and "<style" not in text
            and not re.search(r"\son\w+=|style=", text)
        )
    assert len(text.splitlines()) <= 350


def test_a_page_asks_for_every_module_at_once():
    """Modules that are only found by reading others come a round trip later each."""
    page, wanted, found = (STATIC / "index.html").read_text(), [STATIC / "main.js"], set()
    while wanted:
        file = wanted.pop()
        if file not in found:
            found.add(file)
            wanted += [(file.parent / name).resolve() for name in re.findall(r'from "(\./[^"]+)"', file.read_text())]
    preloaded = {STATIC / name for name in re.findall(r'modulepreload" href="/static/([^"]+)"', page)}
    assert preloaded == found - {STATIC / "main.js"}
