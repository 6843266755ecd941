"""An HTTP application at an address: what the explorer, OTLP over HTTP and the metrics endpoint have in common."""

from typing import Any

from aiohttp import web

from gyre.errors import ConfigError, Unavailable
from gyre.numbers import is_count

CLOSE_S = 1.0
"""Given to answers under way when the server stops."""


class Listener:
    """Serves one aiohttp application. `start`, then `stop`."""

    what = "this"
    """Is served, for words about it."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        """`options`: aiohttp's, of its connections."""
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_S, **options)

    async def start(self, address: str) -> str:
        """Serve at host:port, port 0 for a free one; returns the address.

        Raises ConfigError for text that is no address, Unavailable when nobody can listen there.
        """
        host, _, port = address.rpartition(":")
        if not host or not is_count(port) or int(port) > 65535:
            raise ConfigError(
                f"{self.what} cannot be served at {address!r}: an address is host:port, e.g. 127.0.0.1:9464"
            )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host.strip("[]"), int(port)).start()
        except OSError as error:
            await self._runner.cleanup()
            raise Unavailable(f"{self.what} cannot be served at {address}: {error}") from error
        return f"{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()
