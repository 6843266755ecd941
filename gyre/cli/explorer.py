"""`gyre explorer`: the address of a run's trace explorer, with a key that signs a browser in once."""

import http.client
import json
import subprocess
import sys
import urllib.request
import webbrowser
from pathlib import Path

import click

from gyre.cli.options import find_run, json_option, print_json, run_option
from gyre.clock import clock_of_run
from gyre.errors import ConfigError, NotFound, Unavailable
from gyre.rpc.signin import EVERYBODY, secret_of, sign
from gyre.run_folder import RunFolder
from gyre.supervisor.child import die_with_parent

ANSWER_S = 3.0
ABOUT_BYTES_MAX = 64 * 1024
"""Of an answer: a path and a name, unless a stranger gives it."""
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The run is on this machine, whatever `http_proxy` says of others."""


@click.command()
@run_option
@click.option(
    "--tenant",
    default=EVERYBODY,
    metavar="NAME",
    help="Sign in as this tenant, who sees its own rows only; by default all rows.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the browser.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Where to serve a run that is over; a free port by default.",
)
@json_option
def explorer(run_folder: Path | None, tenant: str, is_opened: bool, port: int, as_json: bool) -> None:
    """Print the link to the run's trace explorer; it signs in once, within ten minutes.

    While the run is up its ledger serves the explorer. When it is over, this command does, until Ctrl-C.
    """
    folder = find_run(run_folder)
    address = live_address(folder)
    child = None if address else _serve(folder, port)
    try:
        address = address or _address_of(child)
        # By the run's clock, as the explorer reads it: the machine's may have been set since the run began.
        now_s = clock_of_run(folder.root).now_s()
        key = sign("sign-in", folder.config()[0].run.name, tenant, now_s, secret_of(folder.keys))
        link = f"http://{address}/#key={key}"
        if as_json:
            print_json({"address": address, "link": link, "tenant": tenant, "is_live": child is None})
        else:
            click.echo(link)
        sys.stdout.flush()
        if is_opened:
            webbrowser.open(link)
        if child is not None:
            child.wait()
    finally:
        if child is not None:
            child.terminate()
            child.wait()


def live_address(folder: RunFolder) -> str:
    """host:port of the explorer that the run's ledger serves now; empty where none does, or a stranger listens at its port."""
    try:
        address = folder.endpoint("explorer")
        with _DIRECTLY.open(f"http://{address}/api/about", timeout=ANSWER_S) as response:
            about = json.loads(response.read(ABOUT_BYTES_MAX))
    except (NotFound, ConfigError, OSError, ValueError, RecursionError, http.client.HTTPException):
        return ""
    return address if isinstance(about, dict) and about.get("folder") == str(folder.root) else ""


def _serve(folder: RunFolder, port: int) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "services.ledger",
        "--run",
        str(folder.root),
        "--log-level",
        "ERROR",
        "--explore",
        f"127.0.0.1:{port}",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)


def _address_of(child: subprocess.Popen) -> str:
    """Where it listens. Raises Unavailable when it does not; why, it has said on standard error."""
    line = child.stdout.readline()
    try:
        return json.loads(line)["address"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable("the explorer did not start") from error
