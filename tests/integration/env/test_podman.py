"""Commands in a container: the contract of a subprocess, and walls around it (C2-C4). Run by `make test-podman`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gyre.env.harness import Bounds, NotStarted, Podman
from gyre.env.harness.warden.asking import asked
from tests.integration.env.conftest import IMAGE
from tests.support import until

pytestmark = pytest.mark.podman
SECONDS = 120
"""How long a command would go on by itself: longer than any test waits for its end."""


@pytest.fixture
def sandbox(podman, listed):
    made = Podman(IMAGE, podman=podman)
    yield made
    made.close()
    assert not made.work.exists()


async def sh(sandbox, script: str, grace_s: float = 0.2, reached=(), **bounds):
    environment = {"HOME": str(sandbox.home), "KEY": "relay-key", "LINES": "a\nb"}
    return await sandbox.start(["sh", "-c", script], environment, Bounds(**bounds), grace_s, reached)


async def test_a_command_sees_its_image_its_folders_and_its_variables_and_no_more(sandbox, monkeypatch):
    monkeypatch.setenv("SECRET_OF_OURS", "x")
    monkeypatch.setenv("http_proxy", "http://ours")
    (sandbox.work / "given").write_text("given")
    script = (
        "env; id -u; pwd; cat given; echo made > made; touch /x; ls /; cat /proc/self/status; cat /proc/net/dev; "
        "cat /proc/1/comm; echo said >&2; exit 3"
    )
    ended = await (await sh(sandbox, script)).wait()
    assert (ended.how, ended.code, ended.left) == ("exited", 3, 0)
    assert "SECRET" not in ended.tail and "ours" not in ended.tail
    assert f"HOME={sandbox.home}\n" in ended.tail and "LINES=a\nb\n" in ended.tail
    assert f"\n65534\n{sandbox.work}\ngiven" in ended.tail and (sandbox.work / "made").read_text() == "made\n"
    assert "touch: /x: Read-only file system" in ended.tail and ended.tail.endswith("said\n")
    rights = dict(line.split(":\t", 1) for line in ended.tail.splitlines() if ":\t" in line)
    assert rights["CapBnd"] == rights["CapEff"] == "0" * 16
    assert (rights["NoNewPrivs"], rights["Seccomp"]) == ("1", "2")
    assert [line.split(":")[0].strip() for line in ended.tail.splitlines() if "eth" in line or " lo:" in line] == ["lo"]


@pytest.mark.parametrize(
    ("script", "bounds", "how"),
    [
        ("yes", {"output_bytes": 200_000}, "output"),
        ("while :; do :; done", {"cpu_s": 0.3}, "cpu"),
        (f"head -c 5000000 /dev/zero > file; sleep {SECONDS}", {"disk_bytes": 1_000_000}, "disk"),
        (f"for i in 1 2 3 4 5 6; do sleep {SECONDS} & done; wait", {"processes": 5}, "processes"),
        (f"sleep {SECONDS}", {"wall_s": 0.1}, "wall"),
        ("head -c 400000000 /dev/zero | tail -c 400000000; echo went on", {"memory_bytes": 50_000_000}, "memory"),
        ("exec tail -c 400000000 /dev/zero", {"memory_bytes": 50_000_000}, "memory"),
        (f"head -c 400000000 /dev/zero > /tmp/held; sleep {SECONDS}", {"memory_bytes": 50_000_000}, "memory"),
    ],
    ids=["output", "cpu", "disk", "processes", "wall", "a child's memory", "memory", "files in memory"],
)  # fmt: skip
async def test_what_exceeds_a_bound_is_ended_and_the_bound_is_why(script, bounds, how, sandbox):
    ended = await (await sh(sandbox, script, **bounds)).wait()
    assert (ended.how, ended.left) == (how, 0)
    assert len(ended.tail) <= 64 * 1024


async def test_an_image_may_be_writable_and_is_as_it_was_for_the_next_command(podman, listed):
    sandbox = Podman(IMAGE, podman=podman, is_root_writable=True, user=1234)
    for _ in range(2):
        ended = await sandbox.run(["sh", "-c", "id -u; ls /srv; echo new > /srv/made"], {}, Bounds())
        assert ended.tail == "1234\n"
    sandbox.close()


async def test_a_fork_bomb_is_held_by_the_kernel_until_it_is_ended(sandbox):
    ended = await (await sh(sandbox, f"(bomb() {{ bomb | bomb & }}; bomb) & sleep {SECONDS}", processes=5)).wait()
    assert (ended.how, ended.left) == ("processes", 0)


async def test_a_command_is_asked_to_end_and_killed_after_its_grace(sandbox):
    mild = await sh(sandbox, f"trap 'echo bye; exit 5' TERM; touch mild; sleep {SECONDS} & wait", grace_s=60)
    await until((sandbox.work / "mild").exists)
    ended = await mild.stop()
    assert (ended.how, ended.code, ended.tail, ended.left) == ("stopped", 5, "bye\n", 0)
    deaf = await sh(sandbox, f"trap '' TERM; touch deaf; while :; do sleep {SECONDS}; done")
    await until((sandbox.work / "deaf").exists)
    ended = await deaf.stop()
    assert (ended.how, ended.code, ended.left) == ("stopped", -signal.SIGKILL, 0)
    assert await deaf.stop() == ended == await deaf.wait()


async def test_a_signals_end_is_told_as_a_signal(sandbox):
    ended = await (await sh(sandbox, "kill -9 $$")).wait()
    assert (ended.how, ended.code) == ("exited", -signal.SIGKILL)


def command_lines() -> list[bytes]:
    return [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]


async def test_what_the_command_and_its_variables_say_is_on_no_command_line_and_in_no_record(sandbox, podman, listed):
    running = await sh(sandbox, f": relay-word; touch there; sleep {SECONDS}")
    await until((sandbox.work / "there").exists)
    try:
        _, said, _ = asked([*podman, "inspect", *listed()], os.environ)
        assert not list(sandbox.tree.parent.glob("start-*/start.json")), "it has been read"
        assert IMAGE in said and "relay-key" not in said and "relay-word" not in said
        lines = command_lines()
        assert any(b"conmon" in line for line in lines) and not any(b"relay-key" in line for line in lines)
        assert not any(b"relay-word" in line for line in lines if b"conmon" in line or line.startswith(b"podman\0"))
    finally:
        await running.stop()


async def test_the_way_to_the_relay_is_the_only_one(sandbox):
    async def answer(reader, writer):
        writer.write(b"heard " + await reader.read())
        writer.close()

    relay, other = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(2)]
    ports = [server.sockets[0].getsockname()[1] for server in (relay, other)]
    ask = "echo hello | nc 127.0.0.1 {}; echo $?;"
    script = f"{ask.format(ports[0])} {ask.format(ports[1])} echo out | nc 10.0.0.1 80; echo $?"
    async with relay, other:
        ended = await (await sh(sandbox, script, reached=[f"http://127.0.0.1:{ports[0]}/v1"])).wait()
    assert ended.tail.startswith("heard hello\n0\n")
    assert "can't connect to remote host (127.0.0.1): Connection refused\n1\n" in ended.tail
    assert ended.tail.endswith("can't connect to remote host (10.0.0.1): Network is unreachable\n1\n")


STARTER = """
import asyncio
from gyre.env.harness import Bounds, Podman
async def main():
    sandbox = Podman({image!r}, podman={podman!r})
    running = await sandbox.start(["sh", "-c", "touch there; sleep {seconds}"], {{}}, Bounds())
    while not (sandbox.work / "there").exists():
        await asyncio.sleep(0.02)
    print(running._running._process.pid, flush=True)
    await running.wait()
asyncio.run(main())
"""


async def started(podman, folder: Path) -> tuple[asyncio.subprocess.Process, int]:
    """A process with a container, and the number of its warden."""
    script = STARTER.format(image=IMAGE, podman=podman, seconds=SECONDS)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={**os.environ, "TMPDIR": str(folder)}, stdout=asyncio.subprocess.PIPE
    )
    return process, int(await process.stdout.readline())


async def test_a_container_goes_with_the_process_that_started_it(podman, listed, tmp_path):
    process, _warden = await started(podman, tmp_path)
    assert len(listed()) == 1
    process.kill()
    await process.wait()
    await until(lambda: not listed())
    await until(lambda: not list(tmp_path.glob("gyre-harness-*")))


async def test_a_container_whose_process_and_warden_were_killed_is_removed_by_the_next_process(
    podman, listed, tmp_path
):
    process, warden = await started(podman, tmp_path)
    other, _ = await started(podman, tmp_path)
    before = listed()
    os.kill(warden, signal.SIGSTOP)  # or it is quicker
    process.kill()
    await process.wait()
    os.kill(warden, signal.SIGKILL)
    assert len(before) == len(listed()) == 2
    third, _ = await started(podman, tmp_path)
    assert len(listed()) == 2 and len(set(before) & set(listed())) == 1, "the other process's is left alone"
    for one in (other, third):
        one.kill()
        await one.wait()
    await until(lambda: not listed())


async def test_without_its_warden_a_command_is_lost_and_its_container_removed(sandbox, listed):
    running = await sh(sandbox, f"touch there; sleep {SECONDS}")
    await until((sandbox.work / "there").exists)
    os.kill(running._running._process.pid, signal.SIGKILL)
    ended = await running.wait()
    assert (ended.how, ended.left, listed()) == ("lost", 0, [])


async def test_what_is_missing_is_said(sandbox, podman):
    with pytest.raises(NotStarted, match="no program `nosuch` in the image, on the path /"):
        await sandbox.run(["nosuch"], {}, Bounds())
    with pytest.raises(NotStarted, match="image not known; pull, build or import it"):
        Podman("gyre-none", podman=podman)
    with pytest.raises(NotStarted, match=r"there is no `/no/podman`: install podman"):
        Podman(IMAGE, podman=["/no/podman"])
    other = [*podman, "--storage-driver", "nosuch"]
    with pytest.raises(NotStarted, match="podman's store was made with other options"):
        Podman(IMAGE, podman=other)
    with pytest.raises(NotStarted, match="driver not supported; podman's storage is said with"):
        Podman(IMAGE, podman=[*other, "--root", f"{podman[-1]}2", "--runroot", f"{podman[-1]}3"])
