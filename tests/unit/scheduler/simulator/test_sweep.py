"""Many runs: what is said of them while they take their time, and that they end."""

import asyncio
import contextlib
import os
import signal
import sys
import time

import psutil
import pytest
import tomli_w

from gyre.errors import InvalidInput, InvariantBroken, Unavailable
from services.scheduler.simulator.__main__ import main
from services.scheduler.simulator.sweep import progress, run_all
from services.scheduler.simulator.workers import Workers
from tests.support import ROOT, until
from tests.unit.scheduler.simulator.specs import spec

LONG = {"workload": {"median_h": 100.0, "sigma": 5.0, "wall_limit_h": 8766.0}, "horizon": {"first_steps": 50_000}}
"""Valid, and some minutes of simulation."""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_is_not_done_in_time_is_given_up_with_what_is_possible(processes):
    """Bad input: a valid specification may still ask for more than anybody waits for. Nothing of it is left running."""
    with pytest.raises(InvalidInput, match=r"within 0\.2 s: simulate fewer steps.*--limit"):
        run_all([("long", spec(**LONG), seed) for seed in (1, 2, 3)], processes=processes, limit_s=0.2)


def test_the_first_run_is_spoken_of_before_it_is_done(capsys, monkeypatch):
    """What is simulated says what it is doing all the while: on a terminal four times a second, elsewhere every ten seconds."""
    said = []

    def say(done: int, of: int) -> None:
        said.append((done, of))
        if len(said) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([("long", spec(**LONG), 1)], say)
    assert said == [(0, 1)] * 2
    monkeypatch.setattr(
        "services.scheduler.simulator.sweep.time.monotonic", iter([0.0, 5.0, 11.0, 21.0, 30.0]).__next__
    )
    say = progress("x")
    for done in (0, 0, 1, 2):
        say(done, 2)
    assert capsys.readouterr().err.splitlines() == [
        "x: the first of 2 runs, for 11 s so far", "x: 1 of 2 runs, 21 s left", "x: 2 runs in 30.0 s",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_whoever_stops_the_command_stops_its_processes(tmp_path, number):
    """A signal to the parent alone, as `kill` and `timeout` send it: it ends at once, and none of its processes computes on without it."""
    (tmp_path / "long.toml").write_text(tomli_w.dumps(LONG))
    command = [sys.executable, "-m", "services.scheduler.simulator", str(tmp_path / "long.toml"), "--seeds", "3"]
    parent = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    children: list[psutil.Process] = []
    try:
        children = await until(lambda: (found := psutil.Process(parent.pid).children())[1:] and found)
        parent.send_signal(number)
        _, errors = await parent.communicate()
        assert parent.returncode == (130 if number == signal.SIGINT else -number) and b"Traceback" not in errors
        await until(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))
    finally:
        for one in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        with contextlib.suppress(ProcessLookupError):
            parent.kill()


def test_a_process_that_was_killed_is_told_of_and_an_error_of_ours_comes_with_its_place():
    """Out of memory, the system kills one: no traceback, and no waiting for what never comes."""
    with Workers(2) as workers, pytest.raises(Unavailable, match="was killed; where memory has run out"):
        workers.give("a", time.sleep, 100.0)
        workers.give("b", os._exit, 1)
        workers.done()
    with Workers(1) as workers, pytest.raises(InvariantBroken, match=r"(?s)Traceback.*ValueError"):
        workers.give("a", time.sleep, -1)
        workers.done()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--set", "cluster.nodes_per_sell=3"), "did you mean `cluster.nodes_per_cell`"),
        (("--set", "workload.kin='x'"), "did you mean `workload.kind`"),
        (
            ("--set", "scheduler.cell_capacity=5"),
            "changes nothing that is simulated; a cell holds cluster.slots_per_node",
        ),
        (("--set", "scheduler.tenant_weights={a=2.0}"), "changes nothing that is simulated"),
        (("--plot", "{folder}/absent/a.svg"), "No such file"),
        (("--plot", "{folder}"), "is a directory"),
    ],
)
def test_what_cannot_be_or_would_change_nothing_is_refused_before_anything_is_simulated(
    tmp_path, capsys, monkeypatch, more, said
):
    """Bad input: told at once with what would be right; a picture that cannot be written would lose an hour of simulation."""
    (tmp_path / "spec.toml").write_text(tomli_w.dumps(LONG))
    words = ["simulate", str(tmp_path / "spec.toml"), *(word.replace("{folder}", str(tmp_path)) for word in more)]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2 and said in " ".join(capsys.readouterr().err.split())
    assert [file.name for file in tmp_path.iterdir()] == ["spec.toml"]
