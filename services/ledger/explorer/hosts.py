"""By which names the explorer may be called: a page of elsewhere that gives our address its own name (DNS rebinding) is asked for under that name.

A name is ours when it was bound, when it is this machine's own, or when `ledger.explorer_hosts` lists it, as the name before an ingress must be.
Bound to every address (`0.0.0.0`, `::`), any address in figures is ours too: what has no name cannot be given another meaning.
"""

import ipaddress
import socket
from collections.abc import Iterable

WILDCARDS = frozenset({"0.0.0.0", "::"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Hosts:
    """Which Host headers are answered."""

    def __init__(self, bound: str, further: Iterable[str] = ()) -> None:
        """`bound`: `network.host`; `further`: names or addresses without a port."""
        self._is_everywhere = _plain(bound) in WILDCARDS
        own = {socket.gethostname(), *further} if self._is_everywhere else {bound, *further}
        self._names = LOOPBACK | {_plain(name) for name in own}

    def allow(self, header: str) -> bool:
        """`header`: a request's Host, with or without a port."""
        name = _plain(header if header.endswith("]") or ":" not in header else header.rpartition(":")[0])
        return name in self._names or (self._is_everywhere and _is_address(name))


def _plain(name: str) -> str:
    """As names are compared: without an address's brackets, a name's last dot, and letters' case."""
    return name.strip("[]").rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
