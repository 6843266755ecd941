"""Runs a package's test suite where it can do no harm: `Sandbox.run(files, module) → Report`.

A run sees a copy of the files in a directory of its own, under limits of wall clock, CPU, memory, file size, output and
(with root's rights) number of processes and a user of its own. What the code does (loop, eat memory, print without end,
exit, fork, delete its directory) ends in a `Report`, never in an exception here. forkserver.py says how.

`run` may be called from many threads at once. It depends on nothing but the files, so reports are cached by their digest.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import gyre
from examples.repair.packages import digest_of

APART = os.path.join(os.path.dirname(gyre.__file__), "env", "harness", "judge", "apart.py")
"""Keeps the tests' process and the package's apart."""


@dataclass(frozen=True)
class Limits:
    wall_s: float = 10.0
    """A suite of these packages runs for a millisecond; all of this is for a busy machine."""
    cpu_s: int = 1
    """Ends an endless loop before the wall clock does, so that what is said of it does not depend on what else runs."""
    memory_bytes: int = 256 * 2**20
    file_bytes: int = 2**20
    output_bytes: int = 65_536
    """More output than this ends the run."""
    processes: int = 16


@dataclass(frozen=True)
class Report:
    """What a test run showed.

    `status` is `ok` (the suite ran, whatever its tests said), `import_error` (the test module could not be loaded),
    `timeout` (CPU time or wall clock), `output` (printed too much) or `crash` (the process ended without a report). `passed` holds names of tests,
    `failed` pairs of name and message. Names are `module.function`, from `test_all.Module.test_function`.
    """

    status: str
    passed: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    error: str = ""

    @property
    def all_passed(self) -> bool:
        return self.status == "ok" and bool(self.passed) and not self.failed


class SandboxError(RuntimeError):
    """The sandbox itself could not run the tests: says nothing about the code under test."""


class Sandbox:
    """Owns one fork server, started at first use and again whenever it is found dead."""

    CACHE_MAX = 4096
    TRIES_MAX = 3
    START_TIMEOUT_S = 20.0
    REPLY_SLACK_S = 10.0
    """On top of the wall limit, for a machine that is busy with other things."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.runs = 0
        """Test runs carried out, those from the cache not counted."""
        self._scratch = tempfile.mkdtemp(
            prefix="repair-sandbox-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None
        )
        os.chmod(self._scratch, 0o711)
        self._server: subprocess.Popen | None = None
        self._starts = 0
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, Report] = OrderedDict()

    def run(self, files: Mapping[str, str], module: str) -> Report:
        """Run the tests of `module` over these files (flat names → text).

        Raises SandboxError when the fork server cannot be brought up or lost the run several times.
        """
        key = f"{module}/{digest_of(dict(files))}"
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        request = {"files": dict(files), "module": module, "limits": asdict(self.limits), "scratch": self._scratch}
        reply = self._ask(json.dumps(request).encode() + b"\n")
        report = _report_of(reply)
        with self._lock:
            self.runs += 1
            if reply["how"] != "timeout":  # the wall clock's may be the machine's doing
                self._cache[key] = report
                while len(self._cache) > self.CACHE_MAX:
                    self._cache.popitem(last=False)
        return report

    def close(self) -> None:
        with self._lock:
            self._stop()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _ask(self, request: bytes) -> dict:
        failure: Exception | None = None
        for _ in range(self.TRIES_MAX):
            try:
                with self._connect() as connection:
                    connection.sendall(request)
                    reply = b"".join(iter(lambda: connection.recv(65_536), b""))
                if reply:
                    return json.loads(reply)
                failure = SandboxError("the run was lost")
            except OSError as error:
                failure = error
        raise SandboxError(f"no test run after {self.TRIES_MAX} tries: {failure}")

    def _connect(self) -> socket.socket:
        """A connection to a server that is alive: one that refuses is dead, even while the system does not say so yet."""
        deadline_s = time.monotonic() + self.START_TIMEOUT_S
        while True:
            start, address = self._server_alive()
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(self.limits.wall_s + self.REPLY_SLACK_S)
            try:
                connection.connect(address)
                return connection
            except (ConnectionRefusedError, FileNotFoundError) as error:
                failure = error
                with self._lock:
                    if start == self._starts:
                        self._stop()
            except BlockingIOError as error:  # its queue of connections is full
                failure = error
                time.sleep(0.01)
            connection.close()
            if time.monotonic() > deadline_s:
                raise SandboxError(f"no connection to the fork server within {self.START_TIMEOUT_S:g} s: {failure}")

    def _server_alive(self) -> tuple[int, str]:
        """Number and address of the server."""
        with self._lock:
            if self._server is None or self._server.poll() is not None:
                self._start()
            return self._starts, os.path.join(self._scratch, f"server-{self._starts}")

    def _start(self) -> None:
        self._stop()
        self._starts += 1
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forkserver.py")
        address = os.path.join(self._scratch, f"server-{self._starts}")
        self._server = subprocess.Popen(
            [sys.executable, "-s", "-P", "-S", "-B", script, address], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            # -I would leave the variable out: sets of strings would then be shown in another order each time
            env={"PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONPATH": os.path.dirname(APART)}, start_new_session=True,
        )  # fmt: skip
        if self._server.stdout.readline() != b"ready\n":
            raise SandboxError("the fork server did not start")

    def _stop(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server.stdout.close()
            self._server = None


def _report_of(reply: dict) -> Report:
    if reply["how"] != "ended":
        return Report({"cpu": "timeout"}.get(reply["how"], reply["how"]))
    try:
        results = json.loads(reply["results"])
        rows = [(_name_of(test), bool(passed), str(message)) for test, passed, message in results["rows"]]
        imported, error = bool(results["imported"]), str(results["error"])
    except (ValueError, KeyError, TypeError):
        return Report("crash", error=reply["output"].strip().split("\n")[-1][:200])
    if not imported:
        return Report("import_error", error=error)
    return Report("ok", tuple(n for n, ok, _ in rows if ok), tuple((n, m) for n, ok, m in rows if not ok))


def _name_of(test_id: str) -> str:
    """`test_all.Text.test_pad` → `text.pad`."""
    parts = test_id.split(".")
    return ".".join((parts[-2].lower(), parts[-1].removeprefix("test_"))) if len(parts) >= 2 else test_id
