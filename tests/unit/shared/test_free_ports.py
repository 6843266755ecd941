"""Ports that are chosen before anybody listens on them (A8): whoever else chooses meanwhile gets others."""

import random
import subprocess
import sys

import pytest

from gyre.bus import server
from gyre.errors import Unavailable

FIRST = 61_000 + 128 * random.randrange(35)
PORTS = range(FIRST, FIRST + 128)
"""Two blocks, above those of outgoing connections: nobody's, but for a second run of these tests, which takes others."""
OTHER = """
import sys
from gyre.bus import server
server.FREE_PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + 128)
print(*[server.free_port() for _ in range(64)], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def alone(monkeypatch):
    """This process has claimed nothing, and claims nothing when the test is over."""
    claims = []
    monkeypatch.setattr(server, "FREE_PORTS", PORTS)
    monkeypatch.setattr(server, "_claims", claims)
    monkeypatch.setattr(server, "_left", [])
    yield
    for claim in claims:
        claim.close()


def test_no_port_is_given_to_two_processes_while_both_live(alone):
    """The other one's are given again once it was killed, here the only ones that are left."""
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(FIRST)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    theirs = set(map(int, other.stdout.readline().split()))
    ours = {server.free_port() for _ in range(64)}
    assert theirs | ours == set(PORTS) and not theirs & ours
    with pytest.raises(Unavailable, match=f"no free port among {FIRST} to {PORTS[-1]}"):
        server.free_port()
    other.kill()
    other.communicate()
    assert {server.free_port() for _ in range(64)} == theirs
