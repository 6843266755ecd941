"""Working trees that are kept and come back (C4)."""

import contextlib
import ctypes
import errno
import hashlib
import os
import socket
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from gyre.env.snapshots import Limits, Series, SnapshotDamaged, Store, TooLarge, TreeChanged, mounts, trees
from gyre.env.snapshots.manifest import Entry, Root, decode
from gyre.env.snapshots.reading import Reading
from gyre.errors import InvalidInput, NotFound
from tests.unit.env.trees import build, describe, descriptions


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def tree_of(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def objects(store: Store) -> list[Path]:
    return list((store.root / "objects").glob("*/*"))


@given(descriptions(), descriptions())
@settings(max_examples=30, deadline=None)
def test_what_is_restored_is_what_was_taken_bit_for_bit(before, after):
    """C4: modes, links, empty folders, names of any bytes; also in the place of another tree, which is gone without a trace."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        store = Store(place / "store")
        build(place / "tree", before)
        taken = store.take(place / "tree")
        trees.remove(place / "tree")
        build(place / "tree", after)
        store.restore(taken.digest, place / "tree")
        assert describe(place / "tree") == before
        assert store.take(place / "tree").digest == taken.digest
        assert sorted(os.listdir(place)) == ["store", "tree"]
        trees.remove(place / "tree")


def test_equal_trees_are_one_snapshot_and_equal_files_are_one_file(tmp_path, store):
    """Two trees of two equal files each: one content and one listing once their times agree."""
    for name in ("a", "b"):
        tree_of(tmp_path / name, {"x": "same", "y": "same"})
        for file in ("x", "y"):
            os.utime(tmp_path / name / file, ns=(10**9, 10**9))
    first, second = store.take(tmp_path / "a"), store.take(tmp_path / "b")
    assert first.digest == second.digest and len(objects(store)) == 2
    assert (first.files, first.bytes, second.bytes_written) == (2, 8, 0)


def test_the_second_snapshot_costs_what_changed(tmp_path, store):
    """A hundred files of a kilobyte in seven folders, one changed: its kilobyte is written, the listings of its folder and of the root (below 2
    kilobytes for 15 files and 7 folders), and the root's 40 bytes; no content else."""
    tree = tree_of(
        tmp_path / "tree", {f"d{index % 7}/f{index}": chr(65 + index % 26) * 1000 + str(index) for index in range(100)}
    )
    series = Series(store, "e0")
    first = series.take(tree)
    (tree / "d3" / "f3").write_text("z" * 1000)
    second = series.take(tree)
    assert (first.ordinal, second.ordinal) == (1, 2) and first.bytes_written > 100_000
    assert 1000 < second.bytes_written < 1000 + 2000


def test_a_file_that_did_not_change_is_not_read_again(tmp_path, store, monkeypatch):
    """Its times lie long before it was read, so they would tell; of two files only the rewritten one is opened."""
    tree = tree_of(tmp_path / "tree", {"old": "1", "new": "2"})
    monkeypatch.setattr("gyre.env.snapshots.reading.RACY_NS", -(10**12))
    series, opened = Series(store, "e0"), []
    series.take(tree)
    (tree / "new").write_text("3")
    monkeypatch.setattr(
        trees.Found, "open", lambda self, real=trees.Found.open: (opened.append(self.path), real(self))[1]
    )
    series.take(tree)
    assert opened == [b"new"]


def test_a_change_that_its_times_cannot_tell_is_seen(tmp_path, store):
    """Same length, same time of modification, within the same instant: files touched less than a second ago are read again."""
    tree = tree_of(tmp_path / "tree", {"x": "1"})
    os.utime(tree / "x", ns=(10**9, 10**9))
    series = Series(store, "e0")
    series.take(tree)
    (tree / "x").write_text("2")
    os.utime(tree / "x", ns=(10**9, 10**9))
    again = series.take(tree)
    series.restore(again.digest, tmp_path / "copy")
    assert (tmp_path / "copy" / "x").read_text() == "2"


def test_a_folder_of_a_snapshot_comes_back_by_itself(tmp_path, store):
    tree = tree_of(tmp_path / "tree", {"work/x": "1", "work/d/y": "2", "worked": "3"})
    (tree / "work").chmod(0o700)
    taken = store.take(tree)
    store.restore(taken.digest, tmp_path / "part", "work")
    assert store.take(tmp_path / "part").digest == store.take(tree / "work").digest
    for name in ("worked", "wor", "absent"):
        with pytest.raises(NotFound, match="no folder"):
            store.restore(taken.digest, tmp_path / "part", name)


def test_a_snapshot_that_is_kept_outlives_its_execution(tmp_path, store):
    series = Series(store, "e0")
    taken = series.take(tree_of(tmp_path / "tree", {"x": "1"}))
    store.keep(taken.digest)
    series.release()
    assert store.collect() == 0 and store.references() == [f"fork-{taken.digest}"]
    store.release(f"fork-{taken.digest}")
    assert store.collect() > 0 and not objects(store)


def test_what_nobody_refers_to_is_collected(tmp_path, store):
    """Three snapshots of a series that keeps two: the first one's file and listing go, the others' two each stay; after release all go."""
    series, taken = Series(store, "e0"), []
    for text in "abc":
        taken.append(series.take(tree_of(tmp_path / "tree", {"x": text})))
    assert store.collect() > 0 and len(objects(store)) == 4
    series.restore(taken[1].digest, tmp_path / "copy")
    with pytest.raises(NotFound):
        series.restore(taken[0].digest, tmp_path / "copy")
    series.release()
    store.collect()
    assert not objects(store) and not os.listdir(store.root / "manifests")


def test_references_of_lost_executions_end_by_age(tmp_path, store):
    Series(store, "lost").take(tree_of(tmp_path / "tree", {"x": "1"}))
    os.utime(store.root / "references" / "lost", (1, 1))
    store.collect(age_s_max=3600)
    assert not objects(store)


@pytest.mark.parametrize(("code", "error"), [(errno.EINVAL, None), (errno.EBUSY, InvalidInput), (errno.EIO, OSError)])
def test_where_trees_cannot_be_exchanged_they_are_put_in_place_in_two_steps(tmp_path, store, monkeypatch, code, error):
    """NFS refuses RENAME_EXCHANGE as invalid. A mount point is refused in words, and what is there stays."""

    class Libc:
        def __init__(self, *_, **__) -> None: ...

        def renameat2(self, *_):
            ctypes.set_errno(code)
            return -1

    tree = tree_of(tmp_path / "tree", {"x": "1"})
    digest = store.take(tree).digest
    (tree / "x").write_text("2")
    monkeypatch.setattr(ctypes, "CDLL", Libc)
    with pytest.raises(error) if error else contextlib.nullcontext():
        store.restore(digest, tree)
    assert (tree / "x").read_text() == ("2" if error else "1")
    assert sorted(os.listdir(tmp_path)) == ["store", "tree"]


# -- bad input


def test_a_link_out_of_the_tree_is_kept_and_never_followed(tmp_path, store):
    """A link to a folder outside: nothing behind it is taken in; restored, it points there again and nothing was written through it."""
    tree_of(tmp_path / "outside", {"secret": "s"})
    tree = tree_of(tmp_path / "tree", {"x": "1"})
    os.symlink(tmp_path / "outside", tree / "way-out")
    taken = store.take(tree)
    assert taken.files == 1
    store.restore(taken.digest, tmp_path / "copy")
    assert os.readlink(tmp_path / "copy" / "way-out") == str(tmp_path / "outside")
    assert os.listdir(tmp_path / "outside") == ["secret"]
    os.symlink(tmp_path / "outside", tmp_path / "linked")
    with pytest.raises(InvalidInput, match="not a folder"):
        store.restore(taken.digest, tmp_path / "linked")
    with pytest.raises(NotFound):
        store.take(tmp_path / "linked")


@pytest.mark.parametrize(
    "entries",
    [
        [Entry(b"../x", "f", digest=b"0" * 32)],
        [Entry(b"..", "d", digest=b"0" * 32)],
        [Entry(b".", "d", digest=b"0" * 32)],
        [Entry(b"/etc", "d", digest=b"0" * 32)],
        [Entry(b"a/passwd", "f", digest=b"0" * 32)],
        [Entry(b"b", "d", digest=b"0" * 32), Entry(b"a", "d", digest=b"0" * 32)],
        [Entry(b"a", "d", digest=b"0" * 32), Entry(b"a", "l", target=b"x")],
        [Entry(b"a", "f", digest=b"short")],
        [Entry(b"a\0b", "d", digest=b"0" * 32)],
        [Entry(b"a", "d", mode=0o170000, digest=b"0" * 32)],
        [Entry(b"a", "l")],
        [Entry(b"", "d", digest=b"0" * 32)],
    ],
)
def test_a_listing_that_leaves_its_folder_is_refused(entries):
    """Also where the store itself was written by somebody else: the digests are right, the names are not."""
    listing = msgspec.msgpack.encode(entries)
    root = msgspec.msgpack.encode(Root(0o755, hashlib.sha256(listing).digest()))
    with pytest.raises(InvalidInput):
        decode(root, hashlib.sha256(root).hexdigest(), lambda _: listing)


def test_sockets_pipes_and_devices_are_left_out_and_named(tmp_path, store):
    """A pipe without a writer would block whoever opens it."""
    tree = tree_of(tmp_path / "tree", {"x": "1"})
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree / "socket"))
        taken = store.take(tree)
    assert taken.left_out == ["pipe", "socket"] and taken.files == 1


@pytest.mark.parametrize(
    ("limits", "said"),
    [({"entries_max": 2}, "entries_max = 2"), ({"bytes_max": 4}, "bytes_max = 4"), ({"depth_max": 1}, "depth_max = 1"),
     ({"path_bytes_max": 2}, "path_bytes_max = 2")],
)  # fmt: skip
def test_a_tree_beyond_a_limit_is_refused_by_name_of_the_limit(tmp_path, limits, said):
    store = Store(tmp_path / "store", Limits(**limits))
    with pytest.raises(TooLarge, match=said):
        store.take(tree_of(tmp_path / "tree", {"a/b": "123", "x": "1", "y": "2"}))


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, store, monkeypatch):
    """Written once between looking and opening: the second pass has it. Written at each pass: refused after three."""
    tree = tree_of(tmp_path / "tree", {"x": "1"})
    times, real = 1, trees.Found.open

    def opened(found):
        nonlocal times
        if times:
            times -= 1
            (tree / "x").write_text("changed" + "!" * times)
        return real(found)

    monkeypatch.setattr(trees.Found, "open", opened)
    store.restore(store.take(tree).digest, tmp_path / "copy")
    assert (tmp_path / "copy" / "x").read_text() == "changed"
    times = 3
    with pytest.raises(TreeChanged, match="3 times"):
        store.take(tree)
    assert not os.listdir(store.root / "temporary")


@pytest.mark.parametrize("change", ["written", "removed", "added"])
def test_a_tree_at_work_is_taken_as_it_stood_at_one_moment_or_not_at_all(tmp_path, store, monkeypatch, change):
    """Each time the last file is read something happens to what was read before: each file by itself is whole, and together they never were so."""
    tree = tree_of(tmp_path / "tree", {"a": "1", "z": "1"})
    times, real = 1, Reading._file

    def read(self, found):
        nonlocal times
        digest = real(self, found)
        if found.path == b"z" and times:
            times -= 1
            match change:
                case "written":
                    (tree / "a").write_text("2" * (times + 2))
                case "removed":
                    (tree / "a").rename(tmp_path / "a")
                case "added":
                    (tree / f"b{times}").write_text("2")
        return digest

    monkeypatch.setattr(Reading, "_file", read)
    taken = store.take(tree, is_at_once=True)
    monkeypatch.setattr(Reading, "_file", real)
    assert store.take(tree).digest == taken.digest, "the second pass, undisturbed"
    if change != "removed":
        times = 3
        monkeypatch.setattr(Reading, "_file", read)
        with pytest.raises(TreeChanged, match="3 times"):
            store.take(tree, is_at_once=True)


def test_a_folder_that_becomes_a_link_while_it_is_read_is_not_followed(tmp_path, store, monkeypatch):
    tree_of(tmp_path / "outside", {"secret": "s"})
    tree = tree_of(tmp_path / "tree", {"a": "1", "d/y": "2"})
    real = Reading._take_in

    def exchange(self, found):
        real(self, found)
        if found.path == b"d" and not (tree / "d").is_symlink():
            trees.remove(tree / "d")
            os.symlink(tmp_path / "outside", tree / "d")

    monkeypatch.setattr(Reading, "_take_in", exchange)
    entries = store.entries(store.take(tree).digest)
    assert [(entry.path, entry.kind) for entry in entries] == [(b"", "d"), (b"a", "f"), (b"d", "l")]


def test_a_damaged_store_is_noticed_and_the_old_tree_stays(tmp_path, store):
    """A content with one byte changed, or gone: restore says which file, and what was there before is as it was."""
    tree = tree_of(tmp_path / "tree", {"x": "right"})
    digest = store.take(tree).digest
    (tree / "x").write_text("newer")
    content = next(path for path in objects(store) if path.read_bytes() == b"right")
    content.chmod(0o644)
    content.write_text("wrong")
    with pytest.raises(SnapshotDamaged, match="x"):
        store.restore(digest, tree)
    content.unlink()
    with pytest.raises(SnapshotDamaged, match="is not in"):
        store.restore(digest, tree)
    (store.root / "manifests" / digest).chmod(0o644)
    (store.root / "manifests" / digest).write_bytes(b"x")
    with pytest.raises(InvalidInput, match="damaged"):
        store.restore(digest, tree)
    assert (tree / "x").read_text() == "newer" and sorted(os.listdir(tmp_path)) == ["store", "tree"]


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "a" * 63, "A" * 64])
def test_only_a_digest_names_a_snapshot(store, tmp_path, digest):
    with pytest.raises(InvalidInput):
        store.restore(digest, tmp_path / "x")
    with pytest.raises(InvalidInput, match="no name"):
        store.release("../x")


def test_a_mount_inside_a_tree_is_refused_by_name_and_never_touched(tmp_path, store, monkeypatch):
    """Going back removes the old tree, and with it would go what somebody mounted there. Beside the tree, or at it, is another matter."""
    tree = tmp_path / "work tree"
    (tree / "data").mkdir(parents=True)
    (tree / "data" / "x").write_text("somebody else's")
    taken = store.take(tree)

    def line(point: str) -> str:
        return f"36 35 98:0 / {point} rw - ext4 /dev/sda1 rw\n"

    table, escaped = tmp_path / "mountinfo", str(tree.resolve()).replace(" ", r"\040")
    table.write_text(line(escaped) + line(f"{escaped}-beside") + line("/"))
    assert mounts.below(tree, table) == []
    table.write_text(line(f"{escaped}/data"))
    monkeypatch.setattr(mounts.below, "__defaults__", (table,))
    with pytest.raises(mounts.MountedInside, match="data, inside"):
        store.take(tree)
    with pytest.raises(mounts.MountedInside):
        store.restore(taken.digest, tree)
    assert (tree / "data" / "x").read_text() == "somebody else's"


def test_a_sparse_file_comes_back_whole_and_takes_no_more_room_than_before(tmp_path, store):
    """64 MiB, of which a few bytes at the beginning, past the middle and nothing at the end are there."""
    tree, size = tmp_path / "tree", 2**26
    tree.mkdir()
    with (tree / "disk.img").open("wb") as file:
        file.write(b"head")
        file.seek(2**25 + 5)
        file.write(b"middle")
        file.truncate(size)
    taken = store.take(tree)
    store.restore(taken.digest, tmp_path / "again")
    status = (tmp_path / "again" / "disk.img").stat()
    assert status.st_size == size and status.st_blocks * 512 < 8 * 2**20
    with (tmp_path / "again" / "disk.img").open("rb") as file:
        assert file.read(4) == b"head"
        file.seek(2**25)
        assert file.read(11) == b"\0" * 5 + b"middle"
    stored = sum(path.stat().st_blocks * 512 for path in (store.root / "objects").rglob("*") if path.is_file())
    assert stored < 8 * 2**20


def test_what_may_not_be_read_is_named_with_its_path(tmp_path, store):
    """A snapshot is whole or is not taken."""
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "secret").write_text("x")
    (tmp_path / "tree" / "inner" / "secret").chmod(0)
    with pytest.raises(PermissionError, match="inner/secret"):
        store.take(tmp_path / "tree")
