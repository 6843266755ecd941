"""The process that test runs are forked from (started by sandbox.py as a script; standard library only).

    sandbox ──connect──▶ server ──fork──▶ warden ──fork──▶ child: new session, own user, limits, runs the tests ──fork──▶ worker: runs the package
            ◀────────────── one JSON report ──┘ ◀─ results pipe, output pipe ─┘                                  ◀─ plain values ─┘

Starting Python and importing unittest takes some 60 ms; a fork of this small preloaded process takes two or three. The
server only accepts and forks, so it stays single-threaded and cannot be blocked by a test. The warden writes the files
to a fresh directory, enforces wall clock and output, kills whatever the child left behind, and removes the directory.

The child reports through a pipe of its own, so a test module that exits early with status 0 has not passed. It imports
nothing of the package: its modules are stand-ins for those in the worker, which answer with plain values (apart.py, of
gyre.env.harness), so what they do can forge no report. A test module that is written to lie could: the caller compares its digest.

A report follows from the files alone, so that runs of one seed see the same words: no directory's name and no address stands in it, hashes of
strings are fixed (sandbox.py starts this with PYTHONHASHSEED), and an endless loop ends by its CPU time, however busy the machine is.
"""

import contextlib
import ctypes
import gc
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
import unittest

import apart

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
UID_FIRST = 2_000_000
"""With root's rights each run gets a user of its own (this + the warden's pid), so limits on processes hold for it."""
RESULTS_MAX_BYTES = 65_536
SERVED = 7
"""The worker's exit code when the tests needed no more of it."""
MESSAGE_MAX_CHARS = 200
PRELOADED = ("calendar", "collections", "datetime", "functools", "itertools", "json", "math", "operator", "string")
"""Modules a package may import: loaded before the forks, since the run's own user may not be able to read the library."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Results(unittest.TestResult):
    """Collects [test id, passed, message] of each test."""

    def __init__(self, tree: str) -> None:
        super().__init__()
        self.tree = tree
        self.rows: list[list] = []

    def addSuccess(self, test) -> None:
        self.rows.append([test.id(), True, ""])

    def addFailure(self, test, err) -> None:
        self._failed(test, err)

    def addError(self, test, err) -> None:
        self._failed(test, err)

    def _failed(self, test, err) -> None:
        name = "" if err[0] in (AssertionError, apart.Unheard) else err[0].__name__ + ": "
        self.rows.append([test.id(), False, _plain((name + str(err[1])).split("\n")[0], self.tree)])


def _plain(message: str, tree: str) -> str:
    """Without what differs from run to run: the tree's directory, addresses of objects."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", message.replace(tree + "/", ""))[:MESSAGE_MAX_CHARS]


def _run_tests(module: str, text: str, work: apart.Work) -> dict:
    tree = os.getcwd()
    sys.meta_path.insert(0, apart.StandIns(work, tree, before=[], others=[]))
    results = _Results(tree)
    tests = sys.modules[module] = types.ModuleType(module)
    tests.__file__ = os.path.join(tree, f"{module}.py")
    try:
        exec(compile(text, tests.__file__, "exec"), vars(tests))
        suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    except BaseException as error:
        place = getattr(error, "place", "") or apart.place_of(error, tree) or "?"
        words = _plain(f"{place}: {type(error).__name__}: {error}", tree)
        return {"imported": False, "rows": [], "error": words}
    suite.run(results)
    return {"imported": True, "rows": results.rows, "error": ""}


def _worker() -> tuple[int, tuple]:
    """Its pid, and where it takes requests and gives replies."""
    requests_read, requests_write = os.pipe()
    replies_read, replies_write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.dup2(requests_read, 3)  # over the results
            os.dup2(replies_write, 4)
            os.closerange(5, 256)
            sys.path.insert(0, os.getcwd())
            with os.fdopen(3, "rb") as requests, os.fdopen(4, "wb") as replies:
                apart.serve(requests, replies)
            sys.stdout.flush()
            os._exit(SERVED)
        finally:
            os._exit(0)
    os.close(requests_read)
    os.close(replies_write)
    return pid, (os.fdopen(requests_write, "wb"), os.fdopen(replies_read, "rb"))


def _as_worker_ended(pid: int) -> None:
    """Ends this process as the worker was ended, unless it served to the end."""
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        os.kill(os.getpid(), signal.SIGXCPU)
    if os.waitstatus_to_exitcode(status) != SERVED:
        os._exit(0)


def _child(request: dict, results_fd: int, output_fd: int) -> None:
    """Never returns. Limits first, then the untrusted code."""
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output_fd, 1)
        os.dup2(output_fd, 2)
        os.dup2(results_fd, 3)
        os.closerange(4, 256)
        limits = request["limits"]
        # SIGXCPU at the first limit, which tells the warden why; SIGKILL a second later for code that ignores it
        resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))
        for name, value in (
            (resource.RLIMIT_AS, limits["memory_bytes"]),
            (resource.RLIMIT_FSIZE, limits["file_bytes"]),
            (resource.RLIMIT_NOFILE, 64),
            (resource.RLIMIT_CORE, 0),
        ):
            resource.setrlimit(name, (value, value))
        if os.geteuid() == 0:
            uid = UID_FIRST + os.getppid()
            resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        pid, peer = _worker()
        _libc.prctl(PR_SET_DUMPABLE, 0)  # the worker has this user and may not look into this process
        report = _run_tests(request["module"], request["files"][request["module"] + ".py"], apart.Work(lambda: peer))
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # it has ended, with a request unread
            peer[0].close()
        _as_worker_ended(pid)
        os.write(3, json.dumps(report).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _watch(child: int, results_fd: int, output_fd: int, limits: dict) -> tuple[str, bytes, bytes]:
    """(how it ended, results, output): reads both pipes until the child has ended or broke a limit."""
    deadline_s = time.monotonic() + limits["wall_s"]
    kept = {results_fd: b"", output_fd: b""}
    most = {results_fd: RESULTS_MAX_BYTES, output_fd: limits["output_bytes"]}
    waiting = set(kept)
    child_fd = os.pidfd_open(child)
    while True:
        left_s = deadline_s - time.monotonic()
        ready = select.select([*waiting, child_fd], [], [], max(0.0, left_s))[0] if left_s > 0 else []
        if not ready:
            return "timeout", kept[results_fd], kept[output_fd]
        for fd in ready:
            if fd == child_fd:
                continue
            data = os.read(fd, 65_536)
            kept[fd] += data
            if not data:
                waiting.discard(fd)
            if len(kept[fd]) > most[fd]:
                return "output", kept[results_fd], kept[output_fd][: most[output_fd]]
        if ready == [child_fd]:  # ended, and nothing is left in the pipes; others that hold them open do not matter
            break
    ended = os.waitid(os.P_PIDFD, child_fd, os.WEXITED | os.WNOWAIT)
    is_cpu = ended.si_code != os.CLD_EXITED and ended.si_status == signal.SIGXCPU
    return "cpu" if is_cpu else "ended", kept[results_fd], kept[output_fd]


def _kill_all(child: int) -> None:
    """Kill the child's group and then everything else that came down to the warden as its reaper."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            pids = [int(pid) for pid in children.read().split()]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _warden(connection: socket.socket) -> None:
    """One test run: read the request, run it, send the report."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with connection.makefile("rb") as lines:
        request = json.loads(lines.readline())
    tree = tempfile.mkdtemp(prefix="run-", dir=request["scratch"])
    try:
        for path, text in request["files"].items():
            with open(os.path.join(tree, path), "w") as file:
                file.write(text)
        os.chmod(tree, 0o755 if os.geteuid() == 0 else 0o700)
        os.chdir(tree)
        results_read, results_write = os.pipe()
        output_read, output_write = os.pipe()
        child = os.fork()
        if child == 0:
            _child(request, results_write, output_write)
        os.close(results_write)
        os.close(output_write)
        how, results, output = _watch(child, results_read, output_read, request["limits"])
        _kill_all(child)
    finally:
        os.chdir("/")
        shutil.rmtree(tree, ignore_errors=True)
    report = {"how": how, "results": results.decode(errors="replace"), "output": output.decode(errors="replace")}
    connection.sendall(json.dumps(report).encode())


def main() -> None:
    address = sys.argv[1]
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wardens are reaped by the kernel
    sys.dont_write_bytecode = True
    for name in PRELOADED:
        __import__(name)
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(256)
    print("ready", flush=True)
    gc.freeze()
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            try:
                server.close()
                _warden(connection)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    main()
