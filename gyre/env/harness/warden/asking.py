"""Requests of podman, from the warden and from the environment process."""

import subprocess
import time
from collections.abc import Mapping, Sequence

PODMAN_S, AGAIN_S = 60.0, 0.1
"""For one request on a busy machine; before it is made again."""


def asked(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """(exit code, what it said, what it complained of)."""
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PODMAN_S, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return -1, "", str(error)
    return done.returncode, done.stdout, done.stderr


def removed(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether the container is gone. Asked again: podman refuses to remove what ends while it looks (4.3: "state improper: stopped")."""
    until_s = time.monotonic() + PODMAN_S
    while (failed := asked(command, environment)[0] != 0) and time.monotonic() < until_s:
        time.sleep(AGAIN_S)
    return not failed
