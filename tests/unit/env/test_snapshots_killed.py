"""A process that is killed at any moment of taking or restoring leaves a store that is whole (C4)."""

import os
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from gyre.env.snapshots import Store, trees
from tests.unit.env.trees import build, describe

OPERATIONS = ("open", "rename", "mkdir", "symlink", "write", "chmod", "fchmod", "utime", "unlink", "rmdir")
BEFORE = {
    b"": ("d", 0o750),
    b"x": ("f", 0o640, b"one", 10**9),
    b"d": ("d", 0o500),
    b"d/big": ("f", 0o600, b"1" * 3_000_000, 10**9),
}
AFTER = {
    b"": ("d", 0o700),
    b"x": ("f", 0o600, b"two", 10**9),
    b"e": ("d", 0o755),
    b"l": ("l", b"../out"),
    b"e/big": ("f", 0o400, b"2" * 3_000_000, 5),
}


def killed_at(operation: int, work: Callable[[], object]) -> bool:
    """Whether a child process that was to be killed by SIGKILL before its `operation`-th operation on files got that far."""
    if (child := os.fork()) == 0:
        left = iter(range(operation - 1, -1, -1))

        def counted(real: Callable) -> Callable:
            def call(*arguments, **options):
                if next(left, -1) == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in OPERATIONS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def check_whole(store: Store, place: Path) -> None:
    """Every manifest in the store can be restored, and a collection leaves no more than what they name."""
    for digest in os.listdir(store.root / "manifests"):
        store.restore(digest, place / "copy")
        assert describe(place / "copy") in (BEFORE, AFTER)
        trees.remove(place / "copy")


@pytest.fixture
def place(tmp_path):
    yield tmp_path
    for name in os.listdir(tmp_path):
        trees.remove(tmp_path / name)


def test_killed_while_it_takes(place):
    """At each of its operations in turn: both trees can still be had, the second one after taking it again at the latest."""
    build(place / "before", BEFORE)
    build(place / "after", AFTER)
    operation = 0
    while True:
        operation += 1
        store = Store(place / f"store{operation}")
        first = store.take(place / "before", reference="e0").digest
        was_killed = killed_at(operation, lambda s=store: s.take(place / "after", reference="e0"))
        check_whole(store, place)
        assert store.referred("e0")[0] in os.listdir(store.root / "manifests")
        second = store.take(place / "after", reference="e0", keep=2).digest
        store.restore(second, place / "copy")
        assert describe(place / "copy") == AFTER
        trees.remove(place / "copy")
        store.release("e0")
        store.collect()
        assert not [name for _, _, files in os.walk(store.root) for name in files if name != "lock"], first
        if not was_killed:
            break
    assert operation > 15


def test_killed_while_it_restores(place):
    """At each of its operations in turn: there is the old tree or the new one, and the next restore leaves nothing beside it."""
    build(place / "tree", AFTER)
    store = Store(place / "store")
    new = store.take(place / "tree", reference="new").digest
    trees.remove(place / "tree")
    build(place / "tree", BEFORE)
    old = store.take(place / "tree", reference="old").digest
    operation, seen = 0, set()
    while killed_at(operation := operation + 1, lambda: store.restore(new, place / "tree")):
        found = describe(place / "tree")
        assert found in (BEFORE, AFTER)
        seen.add(found == AFTER)
        store.restore(old, place / "tree")
        assert describe(place / "tree") == BEFORE and sorted(os.listdir(place)) == ["store", "tree"]
    assert operation > 15 and seen == {False, True}, "killed before the exchange, and while it removed the old tree"


@pytest.mark.skipif(os.getuid() != 0, reason="needs to give up root's rights to see what happens without them")
def test_without_root_s_rights_trees_that_forbid_to_write_come_back_and_go(tmp_path):
    """Folders of mode 500 in both trees, as another user: taken, restored over each other, removed. A file that may not be read is refused."""
    place = Path(tempfile.mkdtemp(prefix="snapshots-test-"))
    os.chmod(place, 0o777)
    if (child := os.fork()) == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            build(place / "tree", AFTER | {b"e": ("d", 0o500)})
            build(place / "other", BEFORE)
            store = Store(place / "store")
            taken = store.take(place / "tree")
            store.restore(taken.digest, place / "other")
            assert describe(place / "other") == AFTER | {b"e": ("d", 0o500)}
            assert sorted(os.listdir(place)) == ["other", "store", "tree"]
            os.chmod(place / "tree" / "x", 0)
            with pytest.raises(PermissionError):
                store.take(place / "tree")
            for name in os.listdir(place):
                trees.remove(place / name)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    trees.remove(place)
    assert status == 0
