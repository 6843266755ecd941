"""A real browser before real books. Runs where GYRE_BROWSER names a Chromium (`make test-browser`), is skipped elsewhere.

GYRE_BROWSER_RUN may name the folder of a run that tests.browser.record made before; else one is recorded.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

CHROMIUM = os.environ.get("GYRE_BROWSER", "")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
]  # fmt: skip
SIZE = {"width": 1440, "height": 1000}
WAIT_MS = 30_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not CHROMIUM:
                item.add_marker(pytest.mark.skip(reason="needs a browser: make test-browser"))


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished real run in which cell 1 stopped taking new weights."""
    if made := os.environ.get("GYRE_BROWSER_RUN"):
        return Path(made)
    folder = tmp_path_factory.mktemp("planted") / "run"
    done = subprocess.run(
        [sys.executable, "-m", "tests.browser.record", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="session")
def served() -> Iterator[Callable[..., str]]:
    """Run folder → the link that `gyre explorer` prints, with a new key each time."""
    children: list[subprocess.Popen] = []

    def serve(folder: Path, tenant: str = "") -> str:
        command = [
            sys.executable,
            "-m",
            "gyre.cli.main",
            "explorer",
            "--run",
            str(folder),
            "--tenant",
            tenant,
            "--json",
        ]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        children.append(child)
        text = ""
        for line in child.stdout:
            text += line
            if line.rstrip() == "}":
                return json.loads(text)["link"]
        raise AssertionError(f"gyre explorer said {text!r}")

    yield serve
    for child in children:
        child.terminate()
        child.wait()


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A fresh profile; what the page itself complains of is `page.problems`."""
    context = chromium.new_context(viewport=SIZE, color_scheme="light")
    made = context.new_page()
    made.set_default_timeout(WAIT_MS)
    made.problems = []
    made.on("pageerror", lambda error: made.problems.append(str(error)))
    made.on("console", lambda line: made.problems.append(line.text) if line.type == "error" else None)
    yield made
    context.close()
