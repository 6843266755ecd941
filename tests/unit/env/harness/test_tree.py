"""What an agent leaves to escape its judgement: it is judged all the same, and removed (B4)."""

import os
import socket
import stat
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from gyre.env.harness import Subprocess, tree
from gyre.env.harness.warden import walk
from tests.unit.env.trees import build, describe, descriptions

NOBODY = 65534
DEEP = sys.getrecursionlimit() + 100
"""Folders: more than Python recurses into, and than a path of 4096 bytes leads to."""


@pytest.fixture
def left(tmp_path) -> Iterator[Path]:
    (made := tmp_path / "root" / "work").mkdir(parents=True)
    yield made
    walk.remove(made.parent)


def nest(folder: Path, depth: int, name: str = "folder") -> None:
    """`depth` folders in each other and a file."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        here, above = os.open(name, os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def as_nobody(does: Callable[[Path], None]) -> None:
    """`does(folder)` in a process for which permissions hold: root reads everything."""
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            does(Path(tempfile.mkdtemp()))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_may_not_be_read_is_opened_up_and_copied():
    def does(root: Path) -> None:
        (work := root / "work").mkdir()
        (work / "closed" / "below").mkdir(parents=True)
        (work / "closed" / "below" / "file").write_text("a")
        (work / "secret").write_text("b")
        for path in ("work/secret", "work/closed/below/file", "work/closed/below", "work/closed", "work", "."):
            (root / path).chmod(0)
        assert not tree.settle(work)
        assert not tree.copy(work, root / "copy")
        assert (root / "copy/closed/below/file").read_text() + (root / "copy/secret").read_text() == "ab"
        for path in ("work/closed/below", "work/closed", "work", "."):
            (root / path).chmod(0)
        walk.remove(root)
        assert not root.exists()

    as_nobody(does)


@pytest.mark.parametrize(("depth", "name"), [(DEEP, "folder"), (tree.DEPTH_MAX - 1, "n" * 200)], ids=["deep", "long"])
def test_what_is_too_deep_is_left_out_and_the_rest_copied(depth, name, left, tmp_path):
    (left / "good").write_text("good")
    nest(left, depth, name)
    assert list(walk.bytes_below([str(left)]))[-1] >= (depth + 2) * walk.ENTRY_BYTES_MIN
    assert tree.settle(left) == {"too_deep": 1}
    assert len(list(left.rglob("*"))) <= tree.DEPTH_MAX + 1, "whoever walks it by recursion or by path comes to an end"
    assert not tree.copy(left, tmp_path / "copy")
    assert (tmp_path / "copy" / "good").read_text() == "good"
    walk.remove(left.parent)
    assert not left.parent.exists()


def test_a_sandbox_of_any_depth_is_removed(tmp_path):
    sandbox = Subprocess(folder=tmp_path)
    nest(sandbox.work, DEEP)
    try:
        sandbox.close()
        assert not list(tmp_path.iterdir())
    finally:
        walk.remove(sandbox.work.parent)


def test_pipes_sockets_and_devices_are_taken_away_and_links_are_kept_as_they_are(left, tmp_path):
    """Whoever opens a pipe waits for ever; whoever follows a link is elsewhere."""
    (elsewhere := tmp_path / "elsewhere").mkdir(mode=0o500)
    os.mkfifo(left / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(left / "socket"))
    (left / "link").symlink_to(elsewhere)
    (left / "dangling").symlink_to("nowhere")
    assert tree.copy(left, tmp_path / "early") == {"special": 2}, "also of a folder that was not settled"
    assert tree.settle(left) == {"special": 2}
    assert not tree.copy(left, tmp_path / "copy")
    for folder in (left, tmp_path / "copy", tmp_path / "early"):
        assert sorted(path.name for path in folder.iterdir()) == ["dangling", "link"]
        assert (folder / "link").readlink() == elsewhere
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o500


@pytest.mark.parametrize(
    "target", ["/dev/zero", "/dev/null", "/proc/self/fd/0", "/proc/kmsg", "/sys/kernel", "../../pipe"]
)
def test_links_to_what_has_no_end_are_taken_away(target, left, tmp_path):
    """Whoever reads `answer.txt` reads for ever, or until the memory of all executions is full. Links to files stay, also to other places."""
    os.mkfifo(tmp_path / "pipe")
    os.symlink(target, left / "answer.txt")
    os.symlink(sys.executable, left / "python")
    os.symlink("nowhere", left / "lost")
    left_out = tree.settle(left)
    assert sorted(os.listdir(left)) == ["lost", "python"] and left_out == {"special": 1}
    assert tree.copy(left, tmp_path / "copy") == {}


def test_holes_are_copied_as_holes(left, tmp_path):
    size = 2**36
    with (left / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(size - 3)
        file.write(b"end")
    (left / "hole").touch()
    os.truncate(left / "hole", size)
    tree.copy(left, tmp_path / "copy", bytes_max=2**20)
    with (tmp_path / "copy" / "sparse").open("rb") as file:
        assert file.read(6) == b"begin\0" and file.seek(size - 4) and file.read() == b"\0end"
    assert (tmp_path / "copy" / "hole").stat().st_size == size and not (tmp_path / "copy" / "hole").stat().st_blocks


def test_more_than_there_is_room_for_is_left_out(left, tmp_path, monkeypatch):
    (left / "large").write_bytes(bytes(range(256)) * 4096)
    (left / "small").write_bytes(b"small")
    os.link(left / "large", left / "again")
    assert tree.copy(left, tmp_path / "copy", bytes_max=2**20 + 2**13) == {"too_large": 1}
    assert (tmp_path / "copy" / "small").read_bytes() == b"small"
    monkeypatch.setattr(tree, "ENTRIES_MAX", 2)
    assert tree.copy(left, tmp_path / "few") == {"too_many": 1} == tree.settle(left)
    assert len(list((tmp_path / "few").iterdir())) == 2


@pytest.mark.parametrize("put", [lambda left, there: left.symlink_to(there), lambda left, _: left.write_text("")])
def test_a_working_folder_that_was_put_away_is_an_empty_one(put, left, tmp_path):
    """A link in its place would have whatever it leads to judged, and copied."""
    (there := tmp_path / "there").mkdir()
    (there / "file").touch()
    left.rmdir()
    put(left, there)
    assert tree.settle(left) == {"replaced": 1}
    assert not list(left.iterdir()) and (there / "file").exists()


@settings(max_examples=30, deadline=None)
@given(descriptions())
def test_a_copy_is_what_was_left(description):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "work").mkdir()
        build(root / "work", description)
        tree.settle(root / "work")
        assert not tree.copy(root / "work", root / "copy")
        settled, copied = describe(root / "work"), describe(root / "copy")
        del settled[b""], copied[b""]
        assert copied == {path: _kept(*what) for path, what in settled.items()}


def _kept(kind: str, *what) -> tuple:
    """No more than the rights of owner, group and others."""
    return (kind, *what) if kind == "l" else (kind, what[0] & 0o777, *what[1:])
