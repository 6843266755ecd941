"""What podman runs while it makes a container (OCI hooks): `python -I -S hook.py STAGE FOLDER`, standard library only (started for podman.py).

| stage | stdin | what is done |
|---|---|---|
| precreate | the container's configuration | said again, with command and variables of FOLDER/start.json: no command line of podman's has them |
| createRuntime | its state | is the program there? then, in FOLDER, what podman.py waits for |

    door    to whoever listens there go sockets that listen on the container's loopback, made in its network
    pid     says who its first process is, and its control groups

Command and variables are then taken out of what `podman inspect` shows; the runtime has read them.
What goes wrong here keeps the container from starting, and podman says it.
"""

import ctypes
import errno
import json
import os
import socket
import stat
import sys
from pathlib import Path

CLONE_NEWNET = 0x40000000
SYS_OPENAT2, RESOLVE_IN_ROOT = 437, 0x10
INIT_WORDS = 2
"""With `podman run --init` the command stands behind `/run/podman-init --`."""
BACKLOG = 128

_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    """struct open_how."""

    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def completed(config: dict, start: dict) -> dict:
    """The container's configuration with command and variables; those that the image has stay where no other is given."""
    process = config["process"]
    kept = [line for line in process["env"] if line.partition("=")[0] not in start["environment"]]
    process["env"] = kept + [f"{name}={value}" for name, value in start["environment"].items()]
    process["args"] = process["args"][:INIT_WORDS] + start["command"]
    return config


def without_secrets(config: dict) -> dict:
    """What podman may go on to show of it: the runtime has read the rest."""
    process = config["process"]
    return config | {"process": process | {"env": [], "args": process["args"][:INIT_WORDS]}}


def has_program(root: int, program: str, path: str, directory: str) -> bool:
    """Whether `execvp` would find it, below the folder `root` (a descriptor) as the container's root."""
    places = (
        [os.path.join(directory, program)] if "/" in program else [f"{folder}/{program}" for folder in path.split(":")]
    )
    return any(_is_program(root, place) for place in places)


def _is_program(root: int, place: str) -> bool:
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
    found = _libc.syscall(SYS_OPENAT2, root, os.fsencode(place), ctypes.byref(how), ctypes.sizeof(how))
    if found < 0:
        return ctypes.get_errno() in (errno.ENOSYS, errno.EPERM)  # not to be told here
    mode = os.fstat(found).st_mode
    os.close(found)
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def create(state: dict, folder: Path, ports: list[int]) -> None:
    pid, place = state["pid"], Path(state["bundle"]) / "config.json"
    config = json.loads(place.read_text())
    process = config["process"]
    program = process["args"][INIT_WORDS]
    path = next((line[5:] for line in process["env"] if line.startswith("PATH=")), "/usr/bin:/bin")
    # All is mounted, and the root not yet changed: it is a folder of the container's mounts.
    root = os.open(f"/proc/{pid}/root{config['root']['path']}", os.O_PATH | os.O_DIRECTORY)
    if not has_program(root, program, path, process["cwd"]):
        sys.exit(f"there is no program `{program}` in the image, on the path {path}")
    lines = Path(f"/proc/{pid}/cgroup").read_text()
    if ports:
        open_door(pid, folder / "door", ports)
    _replace(place, json.dumps(without_secrets(config)))
    _replace(folder / "pid", f"{pid}\n{lines}")


def _replace(place: Path, text: str) -> None:
    new = place.with_name(f"{place.name}.new")
    new.touch(mode=0o600)
    new.write_text(text)
    os.rename(new, place)


def open_door(pid: int, door: Path, ports: list[int]) -> None:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(str(door))
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if _libc.setns(network, CLONE_NEWNET):
        sys.exit(f"the container's network cannot be entered: {os.strerror(ctypes.get_errno())}")
    listeners = []
    for port in ports:
        listeners.append(listener := socket.socket())
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
    socket.send_fds(channel, [b"!"], [listener.fileno() for listener in listeners])


def main() -> None:
    stage, folder = sys.argv[1], Path(sys.argv[2])
    start = json.loads((folder / "start.json").read_text())
    said = json.load(sys.stdin)
    if stage == "precreate":
        json.dump(completed(said, start), sys.stdout)
    else:
        create(said, folder, start["ports"])
        (folder / "start.json").unlink()


if __name__ == "__main__":
    main()
