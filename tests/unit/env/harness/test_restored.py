"""What comes back with a snapshot was the agent's: it leads nobody out of the sandbox, and lends nobody our rights (B4, C4)."""

import contextlib
import os
import stat

import pytest

from gyre.env.harness.programs import Program, write_files
from gyre.env.snapshots import Store, TreeChanged
from gyre.env.snapshots.objects import SMALL_BYTES, Objects

PROGRAM = Program(command=["true"], files={"{home}/.noting/settings": "key = {key}"})


@pytest.mark.parametrize("link", [".noting", ".noting/settings"])
def test_files_of_a_program_are_written_through_no_link_that_came_back(tmp_path, link):
    """The next attempt's process writes them, with its own rights, into a home that the agent has filled."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    outside.mkdir()
    (outside / "settings").write_text("somebody else's")
    (home / link).parent.mkdir(parents=True)
    (home / link).symlink_to(outside if link == ".noting" else outside / "settings")
    write_files(PROGRAM, {"home": str(home), "key": "k"})
    assert (outside / "settings").read_text() == "somebody else's"
    assert (home / ".noting" / "settings").read_text() == "key = k"


def test_files_of_a_program_take_the_place_of_whatever_came_back_there_and_are_its_owners_alone(tmp_path):
    """A second name of a file outside, too, and one that all may read."""
    home, place = tmp_path / "home", tmp_path / "home" / ".noting" / "settings"
    (tmp_path / "outside").write_text("somebody else's")
    place.parent.mkdir(parents=True)
    for make in (lambda: os.link(tmp_path / "outside", place), lambda: place.touch(0o666), place.mkdir):
        make()
        write_files(PROGRAM, {"home": str(home), "key": "k"})
        assert (place.read_text(), stat.S_IMODE(place.stat().st_mode)) == ("key = k", 0o600)
        place.unlink()
    assert (tmp_path / "outside").read_text() == "somebody else's"


def test_no_file_comes_back_that_runs_with_its_owners_rights(tmp_path):
    """Its owner is whoever restores it, and was the agent."""
    (tree := tmp_path / "tree").mkdir()
    (tree / "shell").write_text("#!/bin/sh")
    (tree / "shell").chmod(0o6755)
    store = Store(tmp_path / "store")
    store.restore(store.take(tree).digest, tree)
    assert stat.S_IMODE((tree / "shell").stat().st_mode) == 0o755


def test_what_is_in_a_store_only_its_owner_reads(tmp_path):
    """An agent that runs as another user would find other executions' files there, with modes of the store's and not their own."""
    Store(tmp_path / "state" / "snapshots")
    assert stat.S_IMODE((tmp_path / "state" / "snapshots").stat().st_mode) == 0o700


@pytest.mark.parametrize("size", [0, 2 * SMALL_BYTES])
def test_a_file_that_grows_while_it_is_read_is_not_read_without_end(tmp_path, monkeypatch, size):
    """Small ones are read at once: one that is a gigabyte by then, all of it a hole, would fill the memory of all executions."""
    (tree := tmp_path / "tree").mkdir()
    (tree / "file").write_bytes(os.urandom(size))
    keep, read = Objects.keep, [0]

    def growing(self, source, _size, part):
        os.truncate(tree / "file", 2**30)
        try:
            return keep(self, source, size, part)
        finally:
            os.truncate(tree / "file", size)

    def counted(source, length, _read=os.read):
        data = _read(source, length)
        read[0] += len(data)
        assert read[0] <= 20 * SMALL_BYTES
        return data

    monkeypatch.setattr(Objects, "keep", growing)
    monkeypatch.setattr(os, "read", counted)
    with contextlib.suppress(TreeChanged):  # where the times of files are fine enough to tell
        Store(tmp_path / "store").take(tree)
