"""A store of podman's for these tests alone, with one image in it: busybox and nothing else."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

BUSYBOX = "/bin/busybox"
IMAGE = "gyre-busybox"


@pytest.fixture(scope="session")
def podman() -> Iterator[list[str]]:
    """The command line up to podman's own options."""
    if not (said := os.environ.get("GYRE_PODMAN")):
        pytest.skip("needs podman: run by `make test-podman`")
    if os.geteuid() != 0 or not os.path.exists(BUSYBOX):
        pytest.skip(f"needs root's rights and {BUSYBOX} (Debian: busybox-static)")
    folder = Path(tempfile.mkdtemp(prefix="gyre-podman-"))
    store = ["--storage-driver", "vfs", "--root", str(folder / "store"), "--runroot", str(folder / "run")]
    command = [*said.split(), *store]
    with tarfile.open(folder / "root.tar", "w") as archive:
        archive.add(BUSYBOX, "bin/busybox")
        for name in ("sh", "ls", "cat", "id", "env", "ps", "nc", "head", "tail", "yes", "sleep", "touch", "ip", "seq"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        srv = tarfile.TarInfo("srv")
        srv.type, srv.mode = tarfile.DIRTYPE, 0o777
        archive.addfile(srv)
    subprocess.run([*command, "import", "--quiet", str(folder / "root.tar"), IMAGE], check=True)
    yield command
    subprocess.run([*command, "rm", "--all", "--force", "--time", "0"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)


@pytest.fixture
def listed(podman):
    """Names of all containers in the store; at the end there must be none."""

    def names() -> list[str]:
        done = subprocess.run(
            [*podman, "ps", "--all", "--format", "{{.Names}}"], check=True, capture_output=True, text=True
        )
        return done.stdout.split()

    yield names
    assert names() == []


@pytest.fixture
def python_mounts() -> dict[str, str]:
    """This machine's Python, for an image that has none."""
    base = str(Path(sys.executable).resolve().parent.parent)
    libraries = [path for path in ("/usr/lib", "/lib", "/lib64") if os.path.isdir(path)]
    return {path: path for path in dict.fromkeys([base, *libraries])}
