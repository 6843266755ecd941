"""The gateway's HTTP server: what is no HTTP is refused in the form that its clients read, and is nothing to log; a key in a URL ends here."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiohttp import web

from gyre.keyed_url import apart, masked
from services.rollout.core.reply import error_body

TEXT_CHARS_MAX = 300


class Asked(web.BaseRequest):
    """A request without the key that its URL had (gyre/keyed_url.py)."""

    url_key: str = ""


Handler = Callable[[Asked], Awaitable[web.StreamResponse]]


class Connection(web.RequestHandler):
    """aiohttp's own answer would be plain text, and a traceback in the log for each."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status != 400 or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        said = " ".join(masked(message or "it cannot be read").split())[:TEXT_CHARS_MAX]
        body = error_body(f"no HTTP request: {said}", "invalid_request_error", "bad_request")
        answer = web.json_response(body, status=status)
        answer.force_close()
        return answer


class Server(web.Server):
    """Whose connections are these. Without an application: what is routed here is one look-up (paths.py)."""

    def __init__(self, handler: Handler, request_bytes_max: int) -> None:
        """A body is taken as it comes: a packed one's size would say nothing about what it becomes."""
        make = partial(self._request, request_bytes_max)
        super().__init__(
            handler, request_factory=make, handler_cancellation=True, access_log=None, auto_decompress=False
        )

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)

    def _request(
        self, bytes_max: int, message: Any, payload: Any, protocol: web.RequestHandler, writer: Any, task: Any
    ) -> Asked:
        key, url = apart(message.url)
        if key:
            message = message._replace(url=url, path=url.raw_path_qs)
        request = Asked(message, payload, protocol, writer, task, self._loop, client_max_size=bytes_max)
        request.url_key = key
        return request
