"""An address for each endpoint: free ports, or consecutive fixed ones that must be ours to take."""

import socket

from gyre.bus.server import free_port
from gyre.errors import Unavailable

LOOPBACK = "127.0.0.1"


def assign(names: list[str], host: str, base_port: int) -> dict[str, str]:
    """Endpoint → host:port. `base_port` 0 picks free ones. Raises Unavailable naming the port and what it was for."""
    listeners: list[socket.socket] = []
    endpoints: dict[str, str] = {}
    try:
        for index, name in enumerate(names):
            address = LOOPBACK if name == "bus" else host
            port = base_port + index if base_port else free_port(address)
            # Held until all are chosen, so that no port is given out twice.
            listener = socket.socket()
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
            except OSError as error:
                raise Unavailable(
                    f"{address}:{port}, which network.base_port {base_port} gives to the {name}, cannot be used: {error.strerror}; "
                    "stop what listens there, choose another base_port, or 0 for free ports"
                ) from error
            endpoints[name] = f"{address}:{listener.getsockname()[1]}"
    finally:
        for listener in listeners:
            listener.close()
    return endpoints
