"""A whole run's processes, really started: up, killed one at a time, stopped, nothing left."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from examples.repair.model import make_model
from gyre.config.load import parse
from gyre.errors import ConfigError
from gyre.run_folder import RunFolder
from gyre.supervisor import ProcessFailed, Supervisor
from gyre.supervisor.plan import Process
from tests.support import taken_port, until, until_gone

SOURCE = "from gyre.env import Task\n\n\ndef tasks(split, count, seed):\n    yield Task(task_id=split, task_type='t', seed=seed)\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("model") / "m"
    make_model(str(out), 1, iter(["list_files run_tests submit\n" * 20]), layers=1, hidden=32)
    return out


def config_for(model: Path, **network):
    return parse(
        {"run": {"name": "t"}, "model": {"path": str(model)}, "scheduler": {"cells": 1}, "network": network, "ledger": {"traces": False}},
        "test",
    )  # fmt: skip


def alive(pids) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


async def test_what_is_killed_comes_back_and_a_stopped_run_leaves_nothing(tmp_path, model):
    """E: bus and scheduler are killed with -9, come back under other process ids, and the stop ends every one."""
    supervisor = Supervisor(RunFolder(tmp_path / "run"), config_for(model))
    await supervisor.start()
    try:
        first = supervisor.children()
        assert set(first) == {"bus", "ledger", "scheduler", "trajproc", "rollout", "cell-0", "trainer-0"}
        for name in ("bus", "scheduler"):
            os.kill(first[name], signal.SIGKILL)

        def back() -> dict[str, int] | None:
            now = supervisor.children()
            is_back = all(now.get(name, first[name]) != first[name] for name in ("bus", "scheduler"))
            return now if is_back and alive([now["bus"], now["scheduler"]]) else None

        now = await until(back)
        assert now["trainer-0"] == first["trainer-0"]
    finally:
        await supervisor.stop()
    await until(lambda: not alive({*first.values(), *now.values()}))
    with pytest.raises(ConfigError, match="another configuration"):
        await Supervisor(RunFolder(tmp_path / "run"), config_for(model, base_port=20000)).start()


async def test_a_service_that_refuses_its_configuration_fails_the_start_with_its_words(tmp_path, model):
    """Bad input found by a service itself: weights that are none. The start raises with the service's last line; all others are stopped."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in model.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "config.json").write_text('{"model_type": "no-such-architecture"}')
    supervisor = Supervisor(RunFolder(tmp_path / "run"), config_for(broken))
    with pytest.raises(ProcessFailed, match=r"(cell|trainer)-0"):
        await supervisor.start()
    assert supervisor.children() == {}


def test_a_port_in_use_stops_gyre_train_before_anything_runs(tmp_path, model):
    """Bad input: exit code 2, the port and its purpose named, no process left in the run's folder."""
    (tmp_path / "source.py").write_text(SOURCE)
    with taken_port(before=2) as port:
        (tmp_path / "c.toml").write_text(
            f'[model]\npath = "{model}"\n[tasks]\nsource = "source:tasks"\n[network]\nbase_port = {port - 2}\n'
        )
        done = subprocess.run(
            [sys.executable, "-m", "gyre.cli.main", "train", "c.toml", "--run-dir", str(tmp_path / "run")],
            capture_output=True, text=True, cwd=tmp_path, timeout=300,
        )  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"127.0.0.1:{port}" in done.stderr and "rollout" in done.stderr
    until_gone(
        lambda: [p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or [])]
    )


async def test_a_process_that_gave_up_ends_the_run_at_once_with_its_last_words(tmp_path, model):
    """E: another start would find the same, so there is none."""

    def plan(*_: object) -> list[list[Process]]:
        code = "open('starts', 'a').write('x'); print('weights are not finite'); raise SystemExit(3)"
        return [[Process("judge", [sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {code}"])]]

    supervisor = Supervisor(RunFolder(tmp_path / "run"), config_for(model), plan=plan)
    with pytest.raises(ProcessFailed, match="judge ended with exit code 3: weights are not finite"):
        async with supervisor:
            await supervisor.failed()
    assert (tmp_path / "starts").read_text() == "x"
