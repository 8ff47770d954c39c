"""The data port behind keys: an application before the data port's own, where keys are configured.

A request without a right to be served is refused before its body is read. The router's probes and browsers'
preflights need no key; one that they bring nevertheless goes no further.
"""

import time
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from prompt import api_of_path
from router.answer import Answer
from router.client_keys import CREDENTIALS, ClientKeys
from router.client_paths import needs_no_key
from router.data_app import DataApp
from router.errors import FrontDoorError
from router.headers import REQUEST_ID, read_request_head
from router.refusal import refuse_unread
from router.request_ids import new_ids
from router.request_record import record_of


class KeyGate:
    """The ASGI application.

    Args:
        clock: monotonic seconds, as the keys count them.
    """

    def __init__(
        self, app: DataApp, keys: ClientKeys, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._keys = keys
        self._clock = clock
        self._new_ids = new_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        if needs_no_key(scope["method"], scope["path"], headers):
            own = [field for field in headers if field[0] not in CREDENTIALS]
            await self._app({**scope, "headers": own}, receive, send)
            return
        try:
            key = self._keys.of(headers)
            if (record := record_of(scope)) is not None:
                record.client = key.name
            key.enter(scope["path"], self._clock())
        except FrontDoorError as error:
            await self._refuse(scope, receive, Answer(send), error)
            return
        try:
            await self._app.serve(scope, receive, Answer(send), key)
        finally:
            key.leave()

    async def _refuse(
        self, scope: Scope, receive: Receive, answer: Answer, error: FrontDoorError
    ) -> None:
        request_id = read_request_head(scope["headers"]).request_id or next(self._new_ids)
        if (record := record_of(scope)) is not None:
            record.refusal = error.kind
        api = api_of_path(scope["path"])
        self._app.counters.requests[api, f"{error.status // 100}xx"] += 1
        more = [(REQUEST_ID, request_id.encode())]
        await refuse_unread(answer, receive, error, more, self._app.limits.max_body_bytes)
