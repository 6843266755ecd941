"""The blob store."""

import pytest

from gyre.bus import BlobStore
from gyre.errors import InvalidInput, NotFound


def test_the_same_content_is_stored_once_and_comes_back(tmp_path):
    store = BlobStore(tmp_path)
    digest = store.put(b"tokens")
    assert store.put(b"tokens") == digest
    assert store.get(digest) == b"tokens"
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 1


def test_damage_and_absence_are_errors_of_their_own(tmp_path):
    store = BlobStore(tmp_path)
    digest = store.put(b"tokens")
    (tmp_path / digest[:2] / digest[2:]).write_bytes(b"other")
    with pytest.raises(InvalidInput, match="damaged"):
        store.get(digest)
    with pytest.raises(NotFound):
        store.get("0" * 64)


def test_a_name_that_is_no_digest_never_reaches_the_file_system(tmp_path):
    with pytest.raises(InvalidInput):
        BlobStore(tmp_path).get("../../etc/passwd")


def test_clearing_leaves_nothing_of_the_past(tmp_path):
    """Agent-lightning#438 on disk: what was stored goes, and what a process that died had half written; what is stored afterwards is there."""
    store = BlobStore(tmp_path)
    old = store.put(b"old")
    (tmp_path / old[:2] / "tmp-torn").write_bytes(b"x")
    assert store.clear() == 2 and store.clear() == 0
    with pytest.raises(NotFound):
        store.get(old)
    assert store.get(store.put(b"old")) == b"old"
