"""`gyre explorer` finds the run's own explorer and nobody else's, and signs by the run's clock; so does `gyre compact` count."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from importlib import import_module

import pytest
from click.testing import CliRunner

from gyre.cli.compact import compact
from gyre.cli.explorer import explorer, live_address
from gyre.clock import clock_of_run, fix_clock
from gyre.config import store
from gyre.config.load import parse
from gyre.rpc.signin import secret_of, verify
from gyre.run_folder import RunFolder

HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.make()
    store(parse({"run": {"name": "t"}, "model": {"path": "m"}}, "test"), made.config_file)
    return made


@contextlib.contextmanager
def listening(folder: RunFolder, said: bytes) -> Iterator[None]:
    """Who stands at the address of the run's explorer and says this to everybody."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        folder.write_endpoints({"explorer": f"127.0.0.1:{listener.getsockname()[1]}"})

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as caller:
                        caller.recv(65536)
                        caller.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def own(folder: RunFolder) -> bytes:
    return HEAD + json.dumps({"folder": str(folder.root)}).encode()


def test_the_runs_own_explorer_is_found_past_a_proxy_for_other_machines(folder, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with listening(folder, own(folder)):
        assert live_address(folder) == folder.endpoint("explorer")


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"",
        HEAD + b"[1]",
        HEAD + b"[" * 60_000,
        HEAD + b'{"folder": "/elsewhere"}',
        b"HTTP/1.1 500 no\r\n\r\n",
    ],
)
def test_a_stranger_at_the_address_of_a_run_that_is_over_is_none(folder, said):
    with listening(folder, said):
        assert live_address(folder) == ""


def test_keys_and_ages_are_by_the_clock_of_the_run(folder, monkeypatch):
    """The machine's clock was set back by an hour after the run began: the explorer refused every key as signed in the future or too old."""
    fix_clock(folder.root)
    file = folder.root / "clock.json"
    fixed = json.loads(file.read_text())
    file.write_text(json.dumps(fixed | {"offset_s": fixed["offset_s"] + 3600.0}))
    with listening(folder, own(folder)):
        link = json.loads(CliRunner().invoke(explorer, ["--run", str(folder.root), "--json"]).output)["link"]
    now_s = clock_of_run(folder.root).now_s()
    assert verify(link.partition("#key=")[2], "sign-in", "t", now_s, secret_of(folder.keys)) is not None
    asked: list[str] = []

    def ledger(_folder: RunFolder, argument: str) -> dict[str, int]:
        asked.append(argument)
        return {"calls": 0, "samples": 0, "spans": 0}

    monkeypatch.setattr(import_module("gyre.cli.compact"), "run_ledger", ledger)
    CliRunner().invoke(compact, ["--run", str(folder.root), "--older-than", "1"])
    assert abs(float(asked[0].removeprefix("--compact=")) - (now_s - 86_400.0)) < 300.0
