"""Commands of somebody else: what they see, what they may use, and that nothing of them is left (B1, C4)."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gyre.env.harness import Bounds, NotStarted, Sandbox, Subprocess
from gyre.env.harness import sandbox as module
from gyre.env.harness.warden import processes
from tests.support import WAIT_S, until

SECONDS = 60
"""How long a command would go on by itself: longer than any test waits for its end."""


@pytest.fixture
def sandbox():
    made = Subprocess()
    yield made
    made.close()
    assert not made.work.exists()


async def sh(sandbox: Sandbox, script: str, grace_s: float = 0.2, **bounds):
    environment = {"PATH": os.environ["PATH"], "HOME": str(sandbox.home)}
    return await sandbox.start(["sh", "-c", script], environment, Bounds(**bounds), grace_s)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_command_sees_its_own_variables_and_folders_and_nothing_else(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    running = await sh(sandbox, "env; pwd; echo $$ $(ps -o sid= -p $$); echo said >&2; exit 3")
    ended = await running.wait()
    assert (ended.how, ended.code, ended.left) == ("exited", 3, 0)
    assert "SECRET" not in ended.tail and f"HOME={sandbox.home}" in ended.tail
    assert str(sandbox.work) in ended.tail and ended.tail.endswith("said\n")


async def test_what_leaves_its_session_and_its_parent_is_ended_with_the_command(sandbox):
    """Harnesses start shells in sessions of their own; a kill of the group would miss them."""
    running = await sh(
        sandbox,
        f"setsid sh -c 'sleep {SECONDS} & echo $! > pid; exec sleep {SECONDS}' & while [ ! -s pid ]; do sleep 0.01; done",
    )
    ended = await running.wait()
    assert (ended.how, ended.code, ended.left) == ("exited", 0, 0)
    assert not is_alive(int((sandbox.work / "pid").read_text()))


@pytest.mark.parametrize(
    ("script", "bounds", "how"),
    [
        ("yes", {"output_bytes": 200_000}, "output"),
        ("while :; do :; done", {"cpu_s": 0.3}, "cpu"),
        (f"head -c 5000000 /dev/zero > file; sleep {SECONDS}", {"disk_bytes": 1_000_000}, "disk"),
        (f"for i in 1 2 3 4 5 6; do sleep {SECONDS} & done; wait", {"processes": 5}, "processes"),
        (f"sleep {SECONDS}", {"wall_s": 0.1}, "wall"),
        (f"{sys.executable} -c 'import time; held = bytearray(200_000_000); time.sleep({SECONDS})'", {"memory_bytes": 100_000_000}, "memory"),
    ],
    ids=["output", "cpu", "disk", "processes", "wall", "memory"],
)  # fmt: skip
async def test_what_exceeds_a_bound_is_ended_and_the_bound_is_why(script, bounds, how, sandbox):
    ended = await (await sh(sandbox, script, **bounds)).wait()
    assert (ended.how, ended.left) == (how, 0)
    assert len(ended.tail) <= 64 * 1024


async def test_a_command_that_does_not_want_to_end_is_killed_after_its_grace(sandbox):
    running = await sh(sandbox, f"trap '' TERM; touch ready; while :; do sleep {SECONDS}; done")
    await until((sandbox.work / "ready").exists)
    ended = await running.stop()
    assert (ended.how, ended.code, ended.left) == ("stopped", -signal.SIGKILL, 0)
    assert await running.stop() == ended == await running.wait()


async def test_a_command_dies_with_the_process_that_started_it(tmp_path):
    """kill -9 of the environment process leaves no harness behind, and no folder of it."""
    script = f"""
import asyncio
from gyre.env.harness import Bounds, Subprocess
async def main():
    sandbox = Subprocess()
    running = await sandbox.start(["sh", "-c", "echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; exec sleep {SECONDS}"], {{}}, Bounds())
    await running.wait()
asyncio.run(main())
"""
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    await until((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    assert is_alive(pid)
    starter.kill()
    await starter.wait()
    await until(lambda: not is_alive(pid))
    await until(lambda: not list(tmp_path.glob("gyre-harness-*")))


CHAIN = """
import os, signal, sys, time
held = os.open("held", os.O_WRONLY)
os.set_inheritable(held, True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    if os.fork():
        time.sleep(60)
    if sys.argv[1] == "sessions":
        os.setsid()
"""
HOPS = "exec 3> held; hop() { hop & exit; }; hop"


@pytest.fixture
def is_held(sandbox):
    """Whether any process holds the pipe `held` of the working folder: the kernel knows them all, also those that fork too fast for any list."""
    os.mkfifo(sandbox.work / "held")
    reader = os.open(sandbox.work / "held", os.O_RDONLY | os.O_NONBLOCK)

    def looked() -> bool:
        try:
            return os.read(reader, 1) != b""
        except BlockingIOError:
            return True

    yield looked
    os.close(reader)


@pytest.mark.parametrize("kind", ["group", "sessions"])
async def test_a_chain_of_forks_is_neither_given_grace_nor_outrun(kind, sandbox, is_held):
    """Each one forks and sleeps, deaf to SIGTERM: what was listed a moment ago is never the one that forks."""
    running = await sandbox.start([sys.executable, "-c", CHAIN, kind], {}, Bounds(processes=20), 10 * WAIT_S)
    ended = await asyncio.wait_for(running.wait(), WAIT_S)
    assert (ended.how, ended.left, is_held()) == ("processes", 0, False)


async def test_a_process_that_is_always_another_one_is_found(sandbox, is_held):
    """It forks and ends, so no list of processes ever holds it."""
    ended = await (await sh(sandbox, HOPS)).wait()
    assert (ended.how, ended.left, is_held()) == ("exited", 0, False)


async def test_a_process_that_is_always_another_one_is_found_without_its_warden(sandbox, is_held):
    ended = await (await sh(sandbox, f"{HOPS} & kill -9 $PPID; wait")).wait()
    assert (ended.how, ended.left, is_held()) == ("lost", 0, False)


@pytest.mark.parametrize("left", [f"sleep {SECONDS}", f"env -i sh -c 'trap : TERM; while :; do sleep {SECONDS}; done'"])
async def test_what_a_killed_warden_leaves_is_killed_and_nobody_else(left, sandbox):
    """The command knows its warden by its parent; nothing of it goes on, and what else this process has started does."""
    ours = await asyncio.create_subprocess_exec("sleep", str(SECONDS))
    running = await sh(
        sandbox,
        f"setsid {left} & echo $! > pid; while [ $(ps -o sid= -p $(cat pid)) = $$ ]; do :; done; kill -9 $PPID; sleep {SECONDS}",
    )
    ended = await running.wait()
    assert (ended.how, ended.code, ended.left) == ("lost", -signal.SIGKILL, 0)
    assert not is_alive(int((sandbox.work / "pid").read_text()))
    assert await running.stop() == ended
    assert is_alive(ours.pid)
    ours.kill()
    await ours.wait()


SPAWNING = """
import os, signal, sys, time
os.mkfifo("never")
child = os.fork()
if not child:
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, "never", os.O_RDONLY, 0)])
while open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0] != "D":
    time.sleep(0.01)
if sys.argv[1] == "killed":
    os.kill(os.getppid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("warden", "how"), [("alive", "exited"), ("killed", "lost")])
async def test_who_waits_in_the_kernel_for_a_stopped_child_is_ended_at_once(warden, how, sandbox):
    """vfork's parent waits (D) until its child runs a program; here the child waits for a pipe before, and is stopped there."""
    running = await sandbox.start([sys.executable, "-c", SPAWNING, warden], {}, Bounds(), grace_s=0.0)
    ended = await running.wait()
    assert (ended.how, ended.left) == (how, 0)
    assert ended.wall_s < processes.KILL_S


async def test_a_warden_that_cannot_end_is_killed_with_all_that_it_has_started(sandbox, monkeypatch):
    monkeypatch.setattr("gyre.env.harness.sandbox.WARDEN_GRACE_S", 0.1)
    running = await sh(sandbox, f"kill -STOP $PPID; setsid sleep {SECONDS} & echo $! > new; mv new pid; wait")
    await until((sandbox.work / "pid").exists)
    ended = await running.stop()
    assert (ended.how, ended.left) == ("lost", 0)
    assert not is_alive(int((sandbox.work / "pid").read_text()))


async def test_an_agents_kill_of_its_own_python_servers_is_not_its_wardens_end(sandbox):
    running = await sh(sandbox, "ps -o comm= -p $PPID")
    assert (await running.wait()).tail == "gyre-warden\n"


def test_descent_is_followed_through_any_number_of_generations(monkeypatch):
    chain = {pid: processes.Process(pid - 1, 1, "S", 0.0, 0) for pid in range(2, 30_000)}
    chain[29_999] = chain[29_999]._replace(state="Z")
    monkeypatch.setattr(processes, "everything", lambda: chain | {40_000: processes.Process(1, 1, "S", 0.0, 0)})
    assert sorted(processes.below(2)) == list(range(3, 29_999))


async def test_a_program_that_is_not_there_is_not_started(sandbox):
    with pytest.raises(NotStarted, match="no-such-program: No such file"):
        await sandbox.run(["no-such-program"], {}, Bounds())
    assert (await sandbox.run(["/bin/true"], {}, Bounds())).code == 0


@pytest.mark.parametrize(
    ("command", "bounds", "why"),
    [(["true", "a\0b"], Bounds(), "null byte"), (["true"], Bounds(disk_bytes=2**65), "preexec_fn")],
    ids=["a-word-that-no-command-can-have", "a-bound-that-no-kernel-knows"],
)
async def test_what_python_cannot_start_is_not_started_and_its_warden_was_not_killed(command, bounds, why, sandbox):
    with pytest.raises(NotStarted, match=why):
        await sandbox.run(command, {"PATH": os.environ["PATH"]}, bounds)


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """Wardens have these hard limits: files of 1 MiB, 500 threads."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/bash\nulimit -f 1024 -u 500\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


async def test_a_bound_above_the_limit_of_this_process_is_that_limit(limited, sandbox):
    ended = await (await sh(sandbox, "bash -c 'ulimit -Hf; ulimit -Sf'", disk_bytes=2**40)).wait()
    assert (ended.how, ended.tail) == ("exited", "1024\n1024\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a command another user")
async def test_so_is_the_bound_of_another_users_threads(limited):
    sandbox = Subprocess(user=65534)
    ended = await (await sh(sandbox, "bash -c 'ulimit -Hu; ulimit -Su'")).wait()
    assert (ended.how, ended.tail) == ("exited", "500\n500\n")
    sandbox.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a command another user")
async def test_a_command_of_another_user_cannot_read_what_is_ours(tmp_path):
    secret = tmp_path / "key"
    secret.write_text("secret")
    secret.chmod(0o600)
    sandbox = Subprocess(user=65534)
    (sandbox.work / "theirs").write_text("before")
    ended = await (
        await sh(sandbox, f"id -u; cat {secret}; echo after > theirs; bash -c 'ulimit -u'", processes=3)
    ).wait()
    assert (
        ended.tail.startswith("65534")
        and ended.tail.endswith(f"\n{3 * 32 * 16}\n")
        and "secret" not in ended.tail
        and "ermission denied" in ended.tail
    )
    assert (sandbox.work / "theirs").read_text() == "after\n"
    sandbox.close()


async def test_what_was_killed_while_nothing_ran_in_it_goes_with_the_next_process(tmp_path, monkeypatch):
    """A process that fills a working folder, or judges one, has no warden that would remove it. Folders that somebody holds stay, and so do those
    that were made just now and those of others."""
    monkeypatch.setattr(module, "NEW_S", 0.0)
    code = f"import os; from gyre.env.harness import Subprocess; lost = Subprocess(folder={str(tmp_path)!r}); os.kill(0, 9)"
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, start_new_session=True)
    assert await killed.wait() == -signal.SIGKILL
    (lost,) = tmp_path.iterdir()
    (tmp_path / "gyre-harness-other").mkdir()
    held = Subprocess(folder=tmp_path)
    assert not lost.exists()
    module._sweep.cache_clear()
    Subprocess(folder=tmp_path).close()
    assert held.work.is_dir() and (tmp_path / "gyre-harness-other").is_dir()
    held.close()
    monkeypatch.setattr(module, "NEW_S", 600.0)
    module._sweep.cache_clear()
    (tmp_path / "gyre-harness-new" / "tree").mkdir(parents=True)
    Subprocess(folder=tmp_path).close()
    assert (tmp_path / "gyre-harness-new").is_dir()
