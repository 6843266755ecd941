"""The `gyre` command as its users start it."""

import subprocess
import sys

from tests.support import ROOT


def gyre(*words: object, code: int = 0) -> str:
    """What it prints when it goes well, else what it says of its error; never a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "gyre.cli.main", *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr
