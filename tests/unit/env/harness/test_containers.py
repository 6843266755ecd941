"""What stands around a container, without one: what podman is told, what its hooks do, the way to the relay (C2-C4)."""

import asyncio
import os
import socket
import subprocess

import pytest

from gyre.env.harness import NotStarted, Podman, hook
from gyre.env.harness.door import Door, ports_of
from gyre.env.harness.podman import explained, is_gone, owner
from gyre.env.harness.settings import load
from gyre.env.harness.warden.cgroup import Group
from gyre.errors import ConfigError, InvalidInput

CONFIG = {"process": {"args": ["/run/podman-init", "--", "harness"], "env": ["PATH=/bin", "KEY=images"], "cwd": "/w"}}


def test_the_hook_puts_command_and_variables_in_and_podman_shows_neither():
    start = {"command": ["agent", "--do", "a\nb"], "environment": {"KEY": "ours\nin two lines"}}
    config = hook.completed({"process": dict(CONFIG["process"])}, start)
    assert config["process"]["args"] == ["/run/podman-init", "--", "agent", "--do", "a\nb"]
    assert config["process"]["env"] == ["PATH=/bin", "KEY=ours\nin two lines"]
    shown = hook.without_secrets(config)["process"]
    assert (shown["args"], shown["env"], shown["cwd"]) == (["/run/podman-init", "--"], [], "/w")


@pytest.mark.parametrize(
    ("program", "is_there"),
    [("tool", True), ("/bin/tool", True), ("./tool", False), ("linked", True), ("data", False), ("out", False), ("nosuch", False)],
)  # fmt: skip
def test_a_program_is_looked_for_in_the_containers_root_and_nowhere_else(program, is_there, tmp_path):
    folder, outside = tmp_path / "root/bin", tmp_path / "outside"
    folder.mkdir(parents=True)
    for path, mode in ((folder / "tool", 0o755), (folder / "data", 0o644), (outside, 0o755)):
        path.touch(mode=mode)
        path.chmod(mode)
    (folder / "linked").symlink_to("/bin/tool")
    (folder / "out").symlink_to(outside)
    root = os.open(tmp_path / "root", os.O_PATH)
    assert hook.has_program(root, program, "/sbin:/bin", "/w") is is_there
    os.close(root)


def test_only_this_machines_loopback_can_be_reached():
    urls = ["http://127.0.0.1:8123/v1", "http://name:token@localhost:81", "http://127.0.0.1:8123"]
    assert ports_of(urls) == [8123, 81]
    with pytest.raises(InvalidInput, match=r"reaches 127\.0\.0\.1 .* not 10\.1\.2\.3"):
        ports_of(["http://10.1.2.3:80/v1"])


@pytest.fixture
async def doors(tmp_path):
    """Opens one to a port, as a container would see it: at 127.0.0.2."""
    made: list[Door] = []

    async def to(port: int) -> Door:
        door = Door(tmp_path / f"door{len(made)}", [port])
        await door.open()
        made.append(door)
        listener = socket.socket()
        listener.bind(("127.0.0.2", port))
        listener.listen(8)
        with socket.socket(socket.AF_UNIX) as channel, listener:
            channel.connect(str(tmp_path / f"door{len(made) - 1}"))
            socket.send_fds(channel, [b"!"], [listener.fileno()])
        return door

    yield to
    for door in made:
        await door.close()


async def test_what_goes_through_the_door_arrives_whole_both_ways(doors):
    async def double(reader, writer):
        said = await reader.read()  # to its end: the near side may close its half
        writer.write(said + said)
        writer.close()

    async with await asyncio.start_server(double, "127.0.0.1", 0) as far:
        port = far.sockets[0].getsockname()[1]
        await doors(port)
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        sent = os.urandom(3_000_000)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent + sent
        writer.close()


async def test_a_door_to_nobody_breaks_off_the_connection_and_goes_on(doors):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    await doors(port)
    for _ in range(2):
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        assert await reader.read() == b""
        writer.close()


async def test_a_closed_door_accepts_nobody(doors):
    async with await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0) as far:
        port = far.sockets[0].getsockname()[1]
        door = await doors(port)
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        assert await reader.read() == b""
        writer.close()
        await door.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)


def test_what_the_kernel_counted_is_read_of_either_version_of_control_groups(tmp_path):
    first = "4:memory:/pod/a\n8:pids:/pod/a\n2:cpu,cpuacct:/pod/a\n0::/\n"
    for name, text in {
        "memory/pod/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
        "pids/pod/a/pids.events": "max 3\n",
        "cpuacct/pod/a/cpuacct.usage": "2500000000\n",
        "b/memory.events": "low 0\noom 1\noom_kill 1\n",
        "b/pids.events": "max 0\n",
        "b/cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    group = Group(first, str(tmp_path))
    assert (group.cpu_s(), group.refused()) == (2.5, "processes")
    group = Group("0::/b\n", str(tmp_path))
    assert (group.cpu_s(), group.refused()) == (1.5, "memory")
    (tmp_path / "b/memory.events").write_text("oom_kill 0\n")
    assert group.refused() == ""
    gone = Group("0::/c\n", str(tmp_path))
    assert (gone.cpu_s(), gone.refused()) == (None, None)


def test_a_container_belongs_to_one_process_and_nobody_elses_is_taken_for_left():
    ours = owner()
    assert not is_gone(ours)
    boot, namespace, number, start = ours.split("/")
    assert is_gone(f"{boot}/{namespace}/{number}/{int(start) - 1}"), "another process had the number"
    assert is_gone(f"before/{namespace}/{number}/{start}"), "before the machine was started"
    assert not is_gone(f"{boot}/1/{number}/{start}"), "in another namespace nothing is known of it"
    other = subprocess.Popen(["sleep", "60"])
    theirs = owner(other.pid)
    assert not is_gone(theirs)
    other.kill()
    other.wait()
    assert is_gone(theirs)


def test_podmans_words_are_told_with_what_is_to_be_done():
    hooked = (
        "Error: runc: running hook #0: exit status 1, stdout: , stderr: there is no program `x`\n: OCI runtime error"
    )
    assert explained(hooked) == "there is no program `x`"
    assert explained("Error: inspecting object: x: image not known\n").startswith(
        "inspecting object: x: image not known; pull"
    )
    refused = "Error: kernel does not support overlay fs: 'overlay' is not supported over extfs at \"/x\""
    assert "--storage-driver vfs" in explained(refused)
    path = "statfs /var/lib/containers/storage/overlay/x: no such file"
    assert explained(f"Error: {path}") == path, "a path is no reason"
    assert explained("Error: something else") == "something else"


def test_where_there_is_no_podman_that_is_said(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(NotStarted, match="there is no `no-podman`: install podman"):
        Podman("image", podman=["no-podman"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotStarted, match="root's rights"):
        Podman("image")


def test_a_file_says_a_container_or_a_user_and_not_both(tmp_path):
    file = tmp_path / "e.toml"
    file.write_text('name = "e"\nprompt = "p"\ncheck = ["true"]\nuser = 1000\n[podman]\nimage = "x"\n')
    with pytest.raises(ConfigError, match=r"a container's stands in \[podman\]"):
        load(file)
    file.write_text('name = "e"\nprompt = "p"\ncheck = ["true"]\n[podman]\nimage = "x"\npull = true\n')
    with pytest.raises(ConfigError, match="pull"):
        load(file)
