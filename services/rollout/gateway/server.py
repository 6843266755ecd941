"""Connections of the gateway's HTTP server: what is no HTTP is refused in the form that its clients read, and is nothing to log."""

from aiohttp import web

from services.rollout.core.reply import error_body

TEXT_CHARS_MAX = 300


class Connection(web.RequestHandler):
    """aiohttp's own answer would be plain text, and a traceback in the log for each."""

    __slots__ = ()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        if status != 400 or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        said = " ".join((message or "it cannot be read").split())[:TEXT_CHARS_MAX]
        body = error_body(f"no HTTP request: {said}", "invalid_request_error", "bad_request")
        answer = web.json_response(body, status=status)
        answer.force_close()
        return answer


class Server(web.Server):
    """Whose connections are these."""

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """aiohttp lets nobody choose the class of a server's connections."""

    async def setup(self) -> None:
        await super().setup()
        assert self.server is not None
        self.server.__class__ = Server
