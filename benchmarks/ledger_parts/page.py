"""Seconds until the explorer has answered, through HTTP, by a process of its own as when a run is over."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from gyre.config import Config, store
from gyre.rpc.signin import EVERYBODY, secret_of, sign
from gyre.run_folder import RunFolder

PAGES = ("lanes", "age", "origin", "drops", "pressure", "rows")
"""What each screen asks for; `sample` is `explain` and more, `lineage` one step."""


def page_s(root: Path, config: Config) -> dict[str, tuple[float, float]]:
    """Page → seconds of its first answer, nothing kept, and processor seconds of the server; the database is that of the run folder below `root`."""
    folder = RunFolder(root / "run")
    folder.make()
    store(config, folder.config_file)
    child = None
    try:
        command = [sys.executable, "-m", "services.ledger", "--run", str(folder.root), "--explore", "127.0.0.1:0"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        address = json.loads(child.stdout.readline())["address"]
        key = sign("sign-in", config.run.name, EVERYBODY, time.time(), secret_of(folder.keys))
        request = urllib.request.Request(
            f"http://{address}/api/session", json.dumps({"key": key}).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return {page: _timed(f"http://{address}/api/{page}", cookie, child.pid) for page in PAGES}
    finally:
        if child is not None:
            child.terminate()
            child.wait()


def _timed(url: str, cookie: str, pid: int) -> tuple[float, float]:
    begin_s, begin_cpu_s = time.perf_counter(), _cpu_s(pid)
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Cookie": cookie})) as answer:
        answer.read()
    return time.perf_counter() - begin_s, _cpu_s(pid) - begin_cpu_s


def _cpu_s(pid: int) -> float:
    """User and system time of a process, all threads (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
