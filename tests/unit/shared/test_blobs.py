"""The blob store."""

import os

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


def test_a_sweep_deletes_what_was_last_stored_before_a_time(tmp_path):
    """Agent-lightning#438 on disk: three blobs of 100 s, the second stored again now (its content came once more), the third half written by a
    process that died; a sweep of what is older than 200 s takes the first and the third."""
    store = BlobStore(tmp_path)
    old, again = store.put(b"old"), store.put(b"again")
    torn = tmp_path / old[:2] / "tmp-torn"
    torn.write_bytes(b"x")
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        os.utime(path, (100.0, 100.0))
    store.put(b"again")
    assert store.sweep(200.0) == 2 and store.sweep(200.0) == 0
    assert store.get(again) == b"again"
    with pytest.raises(NotFound):
        store.get(old)
