"""vLLM's process: how it is started, what is said when it does not start, and that nothing of it stays (A6)."""

import asyncio
import stat
import sys
from pathlib import Path

import psutil
import pytest

from gyre.config.sections import VllmConfig
from services.rollout.engine.vllm.client import Silent, VllmClient
from services.rollout.engine.vllm.process import VllmProcess, command, variables
from tests.support import ROOT, until


def script(path: Path, text: str) -> str:
    """Something that stands for the interpreter of vLLM's environment."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


def has_ended(process: psutil.Process) -> bool:
    """Gone, or dead and not yet reaped by whoever has inherited it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def failure(python: str, folder: Path, **settings) -> str:
    config = VllmConfig(python=python, **settings)
    process = VllmProcess(folder, 4, 64, config, "cpu", 1, folder / "vllm.log")
    client = VllmClient(process.socket, 5.0)
    try:
        with pytest.raises(Silent) as caught:
            await process.start(client)
    finally:
        await process.stop()
        await client.close()
        process.forget()
    assert not Path(process.socket).parent.exists()
    return str(caught.value)


async def test_a_process_that_ends_is_told_with_its_last_words(tmp_path):
    """A6: and where its log is."""
    said = await failure(script(tmp_path / "python", "echo starting; echo out of memory >&2; exit 3"), tmp_path)
    assert "ended with 3: out of memory" in said
    assert str(tmp_path / "vllm.log") in said


async def test_a_missing_environment_names_the_target_that_makes_it(tmp_path):
    """A6."""
    assert "make setup-vllm" in await failure(str(tmp_path / "none" / "python"), tmp_path)


async def test_a_process_that_never_gets_healthy_is_given_up(tmp_path):
    """A6: after `start_s`."""
    assert "was not up after 1 s" in await failure(
        script(tmp_path / "python", "exec sleep 3600"), tmp_path, start_s=1.0
    )


async def test_a_process_is_ended_with_all_its_children(tmp_path):
    """A6: the script and the child that it leaves in the background."""
    said = tmp_path / "child"
    python = script(tmp_path / "python", f"sleep 3600 & echo $! > {said}.new; mv {said}.new {said}; wait")
    process = VllmProcess(tmp_path, 4, 64, VllmConfig(python=python), "cpu", 1, tmp_path / "vllm.log")
    client = VllmClient(process.socket, 5.0)
    starting = asyncio.create_task(process.start(client))
    await until(said.exists)
    child = psutil.Process(int(said.read_text()))
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await process.stop()
    await client.close()
    process.forget()
    await until(lambda: has_ended(child))


async def test_a_process_whose_parent_ended_while_it_started_ends_too(tmp_path):
    """vLLM's engine core imports for half a minute before it asks the kernel to be ended with its server: by then nobody may be there to end."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.unit.vllm.orphan", str(tmp_path), cwd=ROOT
    )
    assert await started.wait() == 0
    orphan = int((tmp_path / "child").read_text())
    await until(lambda: not psutil.pid_exists(orphan) or has_ended(psutil.Process(orphan)))
    assert not (tmp_path / "lives").exists()


def test_vllm_listens_on_no_port(tmp_path):
    """A6: its control routes ask for no key."""
    words = command(tmp_path, 4, 64, VllmConfig(), "cpu", "/x/socket", "e.E")
    assert words[words.index("--uds") + 1] == "/x/socket"
    assert not {"--port", "--host"} & set(words)


def test_weights_of_no_meaning_until_a_digest_was_compared(tmp_path):
    """A4: version 0 comes by an update like every other."""
    words = command(tmp_path, 4, 64, VllmConfig(), "cpu", "/x/socket", "e.E")
    assert words[words.index("--load-format") + 1] == "dummy"


def test_what_the_user_adds_comes_last_and_prevails(tmp_path):
    """A6: arguments and variables of the configuration."""
    config = VllmConfig(arguments=["--dtype", "bfloat16"], variables={"OMP_NUM_THREADS": "7"})
    assert command(tmp_path, 4, 64, config, "cuda", "/x/socket", "e.E")[-2:] == ["--dtype", "bfloat16"]
    assert variables(config, "cpu", 1, ())["OMP_NUM_THREADS"] == "7"
