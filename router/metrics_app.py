"""A port that shows metrics and nothing else, for who may read these and do nothing."""

from concurrent.futures import Executor

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.types import Receive, Scope, Send

from router.answer import Answer
from router.errors import ErrorKind, FrontDoorError
from router.metrics import MetricSources, scrape


class MetricsApp:
    """The ASGI application: ``GET /metrics``. It needs no token, and reads no body."""

    def __init__(self, sources: MetricSources, executor: Executor) -> None:
        self._sources = sources
        self._executor = executor

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        answer = Answer(send)
        if scope["path"] != "/metrics":
            await answer.refuse(FrontDoorError(ErrorKind.NOT_FOUND, "there is /metrics only"))
        elif scope["method"] not in ("GET", "HEAD"):
            error = FrontDoorError(ErrorKind.METHOD_NOT_ALLOWED, "/metrics is read with GET")
            await answer.refuse(error, [(b"allow", b"GET, HEAD")])
        else:
            text = await scrape(self._sources, self._executor)
            length = (b"content-length", b"%d" % len(text))
            kind = (b"content-type", CONTENT_TYPE_LATEST.encode())
            await answer.whole(200, [kind, length], text)
