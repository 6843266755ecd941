"""Which hosts may be reached from a sandbox: by name, and by the address that a name turns out to have.

    host ── among `hosts`? ── resolved ── an address of the world, or named in `hosts`? ── connected to exactly that address

The gateway stands where its sandboxes do not: on loopback are the run's services, in its network a cloud's metadata. A pattern does not open them.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from fnmatch import fnmatch

from aiohttp.abc import AbstractResolver, ResolveResult

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""An IPv4 address in the last 32 bits (RFC 6052)."""
METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
"""What a cloud tells its machines at an address that is not marked as local."""
_WILD = frozenset("*?[")


class HostRefused(OSError):
    """Its addresses are not to be reached."""


class Reach(AbstractResolver):
    """The rule, and the resolver that upholds it."""

    def __init__(self, hosts: Iterable[str]) -> None:
        """Patterns (`*.example.com`), which reach what is public; names, addresses and networks, which reach what they name."""
        self._patterns = [host.lower() for host in hosts]
        self._names = {pattern for pattern in self._patterns if not _WILD & set(pattern)}
        self._networks = [network for name in self._names if (network := _network(name)) is not None]

    def why_not(self, host: str) -> str:
        """Why this host is refused by what is seen of it, empty where it is not: a name has to be resolved yet."""
        address = _address(host)
        is_named = address is not None and self._is_named(address)
        if not is_named and not any(fnmatch(host.lower(), pattern) for pattern in self._patterns):
            return f"{host} is not among the hosts that may be reached"
        if address is None and (":" in host or host.replace(".", "").isdigit()):
            return f"{host} is no address as addresses are written"
        if address is not None and not self._may_reach(host, address):
            return _local(host, [str(address)])
        return ""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Those of its addresses that may be reached. Raises HostRefused where none may, OSError where there are none."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = {str(said[0]): (int(kind), proto) for kind, _, proto, _, said in found}
        reached = [text for text in addresses if (one := _address(text)) is not None and self._may_reach(host, one)]
        if not reached:
            raise HostRefused(_local(host, list(addresses)))
        return [
            ResolveResult(
                hostname=host, host=text, port=port, family=addresses[text][0], proto=addresses[text][1],
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for text in reached
        ]  # fmt: skip

    async def close(self) -> None:
        """Nothing is held."""

    def _may_reach(self, host: str, address: Address) -> bool:
        return is_public(address) or host.lower() in self._names or self._is_named(address)

    def _is_named(self, address: Address) -> bool:
        return any(_plain(address) in network for network in self._networks)


def is_public(address: Address) -> bool:
    """Whether it is an address of the world: no loopback, link-local, private, shared, reserved, unspecified or multicast one, in whatever form."""
    address = _plain(address)
    return address.is_global and not (address.is_multicast or address.is_reserved or address in METADATA)


def _plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 one leads to, or itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and address in NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _local(host: str, addresses: list[str]) -> str:
    where = host if addresses == [host] else f"{host} ({', '.join(addresses[:4])})"
    return f"{where} is no host of the world but of this machine or its network: `hosts` has to name it, a pattern does not"
