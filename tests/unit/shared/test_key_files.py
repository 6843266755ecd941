"""Files of keys: whole or absent, and what is no key opens nothing (E, security)."""

import errno
import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gyre import key_files
from gyre.bus import Bus
from gyre.bus.access import authorization, make_keys, seed_path
from gyre.errors import ConfigError, NotFound
from gyre.rpc.auth import key_path, make_rpc_keys, read_key
from gyre.rpc.signin import secret_of

NO_KEYS = (b"", b"\n", b" " * 64, bytes(64), b"short")


@pytest.mark.parametrize("content", NO_KEYS)
def test_a_file_that_holds_no_key_is_refused_by_name(tmp_path, content):
    path = tmp_path / "some.key"
    path.write_bytes(content)
    for ask in (key_files.keep, key_files.read):
        with pytest.raises(ConfigError, match=r"some\.key holds no key.*remove the file"):
            ask(path)
    assert path.read_bytes() == content


def rpc(keys: Path) -> None:
    key_path(keys, "service").touch()
    make_rpc_keys(keys)


def seeds(keys: Path) -> None:
    seed_path(keys, "gateway").touch()
    make_keys(keys)


def explorer(keys: Path) -> None:
    (keys / "explorer.key").touch()
    secret_of(keys)


@pytest.mark.parametrize("start", [rpc, seeds, explorer])
def test_no_start_keeps_an_empty_key(tmp_path, start):
    with pytest.raises(ConfigError, match="holds no key"):
        start(tmp_path)


def test_a_seed_of_something_else_is_refused_by_name(tmp_path):
    make_keys(tmp_path)
    seed_path(tmp_path, "trainer").write_bytes(key_files.new_key())
    with pytest.raises(ConfigError, match=r"nats-trainer\.seed holds no NATS seed"):
        authorization(tmp_path)


async def test_nobody_connects_to_the_bus_with_a_key_that_is_none(tmp_path):
    """The client would say that the bus cannot be reached."""
    with pytest.raises(NotFound, match=r"nats-ledger\.seed"):
        await Bus.connect("nats://127.0.0.1:1", "t", "ledger", seed_path(tmp_path, "ledger"))
    seed_path(tmp_path, "ledger").touch()
    with pytest.raises(ConfigError, match=r"nats-ledger\.seed"):
        await Bus.connect("nats://127.0.0.1:1", "t", "ledger", seed_path(tmp_path, "ledger"))


def test_a_key_that_is_missing_is_not_found(tmp_path):
    with pytest.raises(NotFound, match=r"grpc-service\.key is missing"):
        read_key(tmp_path, "service")


def test_killed_while_it_is_written_leaves_no_key_behind(tmp_path):
    """Between the file's creation and its end: the next start makes one."""
    path = tmp_path / "some.key"
    if (child := os.fork()) == 0:
        key_files.os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        key_files.keep(path)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not path.exists()
    assert len(key_files.keep(path)) >= key_files.BYTES_MIN


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "some.key"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched, pytest.raises(ConfigError, match=r"some\.key cannot be made: No space"):
        patched.setattr(os, "fsync", full)
        key_files.keep(path)
    assert list(tmp_path.iterdir()) == []
    key_files.keep(path)


def test_all_that_start_at_once_have_the_same_key(tmp_path):
    path = tmp_path / "keys" / "some.key"
    with ThreadPoolExecutor(16) as threads:
        keys = set(threads.map(lambda _: key_files.keep(path), range(64)))
    assert keys == {path.read_bytes()}
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
