"""Ports, restarts, children: nothing is left running, whatever ends."""

import dataclasses
import os
import signal
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from gyre.config.load import parse
from gyre.errors import Conflict, Unavailable
from gyre.run_folder import lock_folder
from gyre.supervisor import logs, ports
from gyre.supervisor.child import Child, ProcessFailed
from gyre.supervisor.plan import Process, endpoint_names, stages, thread_variables
from gyre.supervisor.restarts import RestartPolicy, restarts_max
from tests.support import taken_port, until


def python(code: str, name: str = "child", grace_s: float = 5.0) -> Process:
    return Process(name, [sys.executable, "-c", textwrap.dedent(code)], grace_s=grace_s)


async def _printed(log: Path) -> int:
    """The number a child printed first."""
    return int(await until(lambda: log.read_text().partition("\n")[0]))


async def _is_gone(pid: int) -> bool:
    """Gone, or dead and not yet reaped by its new parent."""

    def gone() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return await until(gone)


def test_free_ports_are_all_different():
    endpoints = ports.assign([f"e{i}" for i in range(50)], "127.0.0.1", 0)
    assert len(set(endpoints.values())) == 50


def test_a_port_in_use_is_named_with_what_it_was_for():
    """Bad input: the scheduler would get the second port."""
    with taken_port(before=1) as port, pytest.raises(Unavailable, match=rf"127.0.0.1:{port}.*scheduler"):
        ports.assign(["bus", "scheduler"], "127.0.0.1", port - 1)


def test_a_process_that_dies_again_and_again_is_given_up():
    """Five restarts within a minute, the sixth death is the last; a minute of quiet forgives."""
    policy = RestartPolicy()
    delays = [policy.after_death(float(i)) for i in range(6)]
    assert delays[:5] == [0.2, 0.4, 0.8, 1.6, 3.2] and delays[5] is None
    assert policy.after_death(200.0) == 0.2


def test_services_start_before_cells_and_environments_are_told_where_to_go():
    config = parse(
        {"model": {"path": "m"}, "scheduler": {"cells": 2}, "tasks": {"environment": "e"}, "rollout": {"threads": 3},
         "environments": [{"name": "e", "command": ["{python}", "-m", "e"], "processes": 2, "slots": 5}]}, "test",
    )  # fmt: skip
    plan = stages(config, "/run", "python", "127.0.0.1:1", "key")
    names = [process.name for stage in plan for process in stage]
    assert names == ["ledger", "scheduler", "trajproc", "rollout", "cell-0", "cell-1", "trainer-0", "trainer-1",
                     "environment-e-0", "environment-e-1"]  # fmt: skip
    assert {p.endpoint for stage in plan for p in stage if p.endpoint} <= set(endpoint_names(config))
    environment, cell = plan[-1][0], plan[3][0]
    assert environment.command == ["python", "-m", "e"] and environment.variables["GYRE_ENVIRONMENT_SLOTS"] == "5"
    assert cell.variables["OMP_NUM_THREADS"] == "3" and thread_variables(1)["HF_HUB_OFFLINE"] == "1"


def test_a_cell_has_only_the_processes_of_the_roles_it_can_take():
    """A9: mode async with two cells that always train; standalone cells never do."""

    def names(**scheduler) -> list[str]:
        config = parse({"model": {"path": "m"}, "scheduler": scheduler}, "test")
        plan = stages(config, "/run", "python", "127.0.0.1:1", "key")
        assert {p.endpoint for stage in plan for p in stage if p.endpoint} <= set(endpoint_names(config))
        return [process.name for process in plan[3]]

    assert names(mode="async", cells=3, training_cells=2, standalone_cells=1) == ["cell-2", "trainer-0", "trainer-1"]
    assert names(mode="colocate", cells=3, standalone_cells=1) == [
        "cell-0",
        "cell-1",
        "cell-2",
        "trainer-0",
        "trainer-1",
    ]


def test_environments_are_spread_over_the_gateways_and_each_knows_all_of_them():
    config = parse(
        {"model": {"path": "m"}, "tasks": {"environment": "e"}, "rollout": {"gateways": 2},
         "environments": [{"name": "e", "command": ["e"], "processes": 3}]}, "test",
    )  # fmt: skip
    said = [process.variables for process in stages(config, "/run", "python", "a:1,b:2", "key")[-1]]
    assert [variables["GYRE_ROLLOUT_ADDRESS"] for variables in said] == ["a:1", "b:2", "a:1"]
    assert [variables["GYRE_ROLLOUT_ADDRESSES"] for variables in said] == ["a:1,b:2", "b:2,a:1", "a:1,b:2"]


async def test_an_environment_that_was_attached_may_die_any_number_of_times(tmp_path):
    """Its executions end it, and have attempts of their own: a hundred deaths in a minute, and it is started again. One that has not been attached
    since its last start does not work, and is given up as ever."""
    attached = tmp_path / "attached"
    attached.touch()
    silent = dataclasses.replace(python("pass"), attached_file=str(attached))
    for spec, expected in (
        (silent, False),
        (dataclasses.replace(python(f"open({str(attached)!r}, 'w')"), attached_file=str(attached)), True),
    ):
        child = Child(spec, tmp_path / "log")
        await child.start()
        await child.wait()
        assert child.was_attached is expected
    policy = RestartPolicy()
    delays = [policy.after_death(i / 10, restarts_max(is_first_start=False, was_attached=True)) for i in range(100)]
    assert None not in delays and max(delays) == 5.0
    assert restarts_max(is_first_start=False, was_attached=False) == 5


def test_a_log_that_grows_without_end_is_emptied_under_its_writer(tmp_path):
    """The end of what was there stands beside it; what is written later goes on in the same file, at its beginning."""
    log = tmp_path / "noisy.log"
    with log.open("ab") as writer:
        writer.write(b"x" * 10_000 + b"last words")
        writer.flush()
        logs.shorten_all(tmp_path, bytes_max=20_000)
        assert log.stat().st_size == 10_010
        logs.shorten_all(tmp_path, bytes_max=10_000)
        writer.write(b"and on")
    assert log.read_text().startswith("[10010 bytes of log were cut") and log.read_text().endswith("\nand on")
    assert (tmp_path / "noisy.log.cut").read_bytes().endswith(b"last words")


async def test_a_stopped_child_takes_its_own_children_with_it(tmp_path):
    """The child ignores SIGTERM and has a child: both are gone after the grace."""
    spec = python(
        """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        inner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(inner.pid, flush=True)
        time.sleep(600)
        """,
        grace_s=0.5,
    )
    child = Child(spec, tmp_path / "log")
    await child.start()
    inner = await _printed(tmp_path / "log")
    await child.stop()
    assert child.process.returncode == -signal.SIGKILL
    assert await _is_gone(inner)


async def test_a_failed_child_is_quoted_with_its_last_words(tmp_path):
    child = Child(
        python("import sys; print('trainer-0: no tokenizer in m', file=sys.stderr); sys.exit(2)"), tmp_path / "log"
    )
    await child.start()
    error = child.failed(await child.wait())
    assert isinstance(error, ProcessFailed) and error.is_user_error and "no tokenizer in m" in str(error)


async def test_a_command_that_does_not_exist_is_a_user_error(tmp_path):
    with pytest.raises(ProcessFailed, match="cannot be started"):
        await Child(Process("e", ["/no/such/program"]), tmp_path / "log").start()


async def test_children_die_when_their_supervisor_is_killed(tmp_path):
    """kill -9 of the parent: no chance to clean up, and still nothing is left."""
    code = f"""
        import asyncio, sys
        from pathlib import Path
        from gyre.supervisor.child import Child
        from gyre.supervisor.plan import Process
        async def main():
            child = Child(Process("c", [sys.executable, "-c", "import time; time.sleep(60)"]), Path({str(tmp_path / "inner.log")!r}))
            await child.start()
            print(child.process.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
    """
    parent = Child(python(code), tmp_path / "log")
    await parent.start()
    inner = psutil.Process(await _printed(tmp_path / "log"))
    os.kill(parent.process.pid, signal.SIGKILL)
    await parent.wait()
    assert await _is_gone(inner.pid)


def test_a_folder_has_one_supervisor_at_a_time(tmp_path):
    """E: two runs over one bus and one ledger would be in each other's books; the lock goes with its process or its file."""
    held = lock_folder(tmp_path)
    with pytest.raises(Conflict, match="in use by another"):
        lock_folder(tmp_path)
    held.close()
    lock_folder(tmp_path).close()
