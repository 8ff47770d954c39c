"""HTTP/1 on one connection, within bounds, as uvicorn's server runs it.

    bytes ─┬─ no answer is waited for ─▶ parser ─▶ cycle ─▶ application
           ├─ one is ──────────────────▶ held, at most ``MAX_HELD_BYTES``, until it has been sent
           └─ refused before ──────────▶ dropped

Reading never stops while an answer is waited for, so that a client that leaves is noticed at once, pipelined
requests or not. A head is bounded in bytes and time, a body in time. What cannot be told apart
safely is refused and the connection closed.

A request costs a few reads of the clock, and no timer or task beyond its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from router.connections import (
    LINGER_S,
    MAX_HEAD_BYTES,
    MAX_HELD_BYTES,
    MAX_PIPELINED,
    MIN_BODY_BYTES,
    NEVER,
    NUM_SURPLUS,
    REFUSALS,
    ConnectionEnd,
    ConnectionGuard,
)
from router.http_cycle import FrontDoorCycle, OldClientCycle, bare_refusal
from router.http_head import BODY, HEAD, IDLE, LINGER, HeadReader, RefusedError
from router.repeated_head import HeadMemory, RepeatedHead

_SURPLUS_HEAD_S = 5.0
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class FrontDoorProtocol(HeadReader):
    """One connection.

    Applications find it in ``scope["extensions"]["kvroute.connection"]``.

    Attributes:
        transport: of the connection.
        flow: whether it is read from, and may be written to.
        tasks: of the server, of all its requests.
        running: the request that is served, or was served last.
        due: when it has overstayed, in the loop's time.
        has_left: the client closed it.
        is_surplus: it is one more than the port takes.
        on_leave: called once when the client closes it.
        refused_as: what the client was told in place of an answer to a request that had begun.
    """

    transport: asyncio.Transport
    flow: FlowControl

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        guard: ConnectionGuard,
    ) -> None:
        super().__init__()
        if not config.loaded:
            config.load()
        self._app: ASGIApp = config.loaded_app
        self._app_state = app_state
        self._loop = loop or asyncio.get_running_loop()
        self._server_state = server_state
        self.tasks = server_state.tasks
        self._guard = guard
        self._limits = guard.limits
        self._extensions["kvroute.connection"] = self
        self._reason = ConnectionEnd.MALFORMED
        self._cycle: FrontDoorCycle | None = None  # the last request whose head came whole
        self.running: FrontDoorCycle | None = None
        self._queued: deque[FrontDoorCycle] = deque()
        self._held = bytearray()
        self._fruitless_bytes = 0  # read since a head, or a piece of a body, was complete
        self._body_bytes = 0  # read since the deadline was moved
        self._is_deaf = False
        self._of_connection: dict[str, Any] = {}  # what the scopes of all its requests say
        self._heads = HeadMemory()
        self.due = NEVER
        self.has_left = False
        self.is_surplus = False
        self.on_leave: Callable[[], None] | None = None
        self.refused_as: ConnectionEnd | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, or refuse it where there are too many."""
        self.transport = transport
        self.flow = FlowControl(transport)
        self._of_connection = {
            "type": "http",
            "asgi": _ASGI,
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "root_path": "",
        }
        self._server_state.connections.add(self)  # type: ignore[arg-type]
        guard, limits = self._guard, self._limits
        guard.join(self, self._loop)
        self.is_surplus = guard.num_open > limits.max_connections
        head_s = min(_SURPLUS_HEAD_S, limits.head_s) if self.is_surplus else limits.head_s
        self.due = self._loop.time() + head_s
        if guard.num_open > limits.max_connections + NUM_SURPLUS:
            self._refuse(ConnectionEnd.TOO_MANY)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever works for this client."""
        self._guard.leave(self)
        self._server_state.connections.discard(self)
        self._held.clear()
        self._queued.clear()
        for cycle in (self.running, self._cycle):
            if cycle is not None:
                cycle.disconnected |= not cycle.response_complete
                cycle.tell()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        del self._parser  # which holds this connection
        self._leave()

    def eof_received(self) -> None:
        """A client that sends nothing more is gone; its connection is closed on return."""
        self._leave()
        if self._is_answering():
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.flow.pause_writing()
        self.due = self._loop.time() + self._limits.read_s

    def resume_writing(self) -> None:
        """It has caught up."""
        self.flow.resume_writing()
        if self._is_answering() and self._phase != BODY:
            self.due = NEVER

    def shutdown(self) -> None:
        """The server stops: an answer that is on its way is the last one."""
        if self._cycle is None or self._cycle.response_complete:
            self.transport.close()
        else:
            self._cycle.keep_alive = False

    def expire(self, now: float) -> None:
        """The deadline has passed."""
        transport = self.transport
        if self.flow.write_paused or transport.is_closing() or self._phase == LINGER:
            if self._is_answering():
                self._guard.ended[ConnectionEnd.READ_TIMEOUT] += 1
            transport.abort()
        elif self._phase == HEAD:
            self._refuse(ConnectionEnd.HEAD_TIMEOUT)
        elif self._phase == BODY and self.flow.read_paused:
            self.due = now + self._limits.body_s
        elif self._phase == BODY:
            self._refuse(ConnectionEnd.BODY_TIMEOUT)
        else:
            transport.close()
            self._linger(now)

    # Bytes

    def data_received(self, data: bytes) -> None:
        """Parse what came, hold it, or drop it."""
        if self._is_deaf:
            return
        cycle = self._cycle
        is_owed = cycle is not None and not cycle.response_complete
        if is_owed and (self._queued or (cycle is not None and not cycle.more_body)):
            self._hold(data)
            return
        self._head = self._head + data if self._phase == HEAD else data
        is_between = self._phase == IDLE
        if is_between:
            if (known := self._heads.find(data)) is not None:
                self._repeat(*known)
                return
            self._phase = HEAD
            self._fruitless_bytes = 0
            if cycle is not None:
                self.due = self._loop.time() + self._limits.head_s
        self._fruitless_bytes += len(data)
        self._body_bytes += len(data)
        self._feed(data)
        if self._phase != HEAD:
            self._head = b""
        if is_between and self._phase == IDLE:
            self._remember(data)

    def _repeat(self, head: RepeatedHead, body: bytes) -> None:
        """Begin a whole request without parsing it."""
        self._body_bytes = 0
        self._head = b""
        self.due = NEVER
        scope = head.scope_of(body, self._app_state.copy())
        cycle = FrontDoorCycle(self, scope, keep_alive=True, expects_continue=False)
        cycle.known_head = head.head_of(body)
        self._begin(cycle)
        cycle.add(body)
        cycle.more_body = False

    def _remember(self, data: bytes) -> None:
        """The head of what was read, where that is one request and no answer to it is the last one."""
        cycle = self._cycle
        if self._queued or self._is_deaf or self._has_coding or self._expects_continue:
            return
        if type(cycle) is FrontDoorCycle and cycle.keep_alive:
            self._heads.remember(data, cycle.scope)

    def _feed(self, data: bytes) -> None:
        self._reason = ConnectionEnd.MALFORMED
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed(self._without_upgrade() + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._reason)
        else:
            self._move_deadline()

    def _move_deadline(self) -> None:
        if self._fruitless_bytes > MAX_HEAD_BYTES:
            self._refuse(ConnectionEnd.HEAD_TOO_LARGE)
        elif self._phase == IDLE:
            cycle = self._cycle  # complete where it was refused before its body was whole
            idles = cycle is not None and cycle.response_complete
            self.due = self._loop.time() + self._limits.keep_alive_s if idles else NEVER
        elif self._phase == HEAD and self._is_answering():
            self.due = NEVER
        elif self._phase == HEAD:
            self.due = min(self.due, self._loop.time() + self._limits.head_s)
        else:
            self._await_body()
        if self._queued:
            self.flow.resume_reading()
            self.due = NEVER

    def _await_body(self) -> None:
        """Read on as fast as the application takes it. One that is whole never stops the reading."""
        if self._body_bytes >= MIN_BODY_BYTES:
            self._body_bytes = 0
            self.due = self._loop.time() + self._limits.body_s
        if self._cycle is not None and len(self._cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def _hold(self, data: bytes) -> None:
        if len(self._held) + len(data) <= MAX_HELD_BYTES:
            self._held += data
        else:
            self._guard.ended[ConnectionEnd.PIPELINED] += 1
            self._close_after_answers()

    # Callbacks of the parser

    def on_headers_complete(self) -> None:
        """The head is whole: start on the request, or queue it."""
        parser = self._parser
        if self._fruitless_bytes > MAX_HEAD_BYTES and self._num_head_bytes() > MAX_HEAD_BYTES:
            self._reason = ConnectionEnd.HEAD_TOO_LARGE
            raise RefusedError
        self._method = parser.get_method().decode("ascii")
        self._version = version = parser.get_http_version()
        if parser.should_upgrade() and self._method != "CONNECT":
            self._declines_upgrade = True
            return
        is_old = version == "1.0"
        if not is_old and version != "1.1":
            raise RefusedError
        self._check_head(is_old=is_old)
        scope = {**self._of_connection, **self._scope(), "state": self._app_state.copy()}
        self._fruitless_bytes = self._body_bytes = 0
        self._phase = BODY
        self.due = self._loop.time() + self._limits.body_s
        keep_alive = not is_old and not self.is_surplus and parser.should_keep_alive()
        kind = OldClientCycle if is_old else FrontDoorCycle
        expects = self._expects_continue
        self._begin(kind(self, scope, keep_alive=keep_alive, expects_continue=expects))

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._fruitless_bytes = 0
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            cycle.add(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._declines_upgrade:
            return
        self._fruitless_bytes = 0
        self._phase = IDLE
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            cycle.more_body = False
            cycle.tell()

    def _begin(self, cycle: FrontDoorCycle) -> None:
        earlier = self._cycle
        if earlier is None or earlier.response_complete:
            self._start(cycle)
        elif len(self._queued) < MAX_PIPELINED:
            self._queued.appendleft(cycle)
        else:
            self._reason = ConnectionEnd.PIPELINED
            raise RefusedError
        self._cycle = cycle

    def _start(self, cycle: FrontDoorCycle) -> None:
        self.running = cycle
        cycle.task = self._loop.create_task(cycle.run(self._app))
        self.tasks.add(cycle.task)  # which the cycle leaves at its end

    # Answers

    def on_response_complete(self) -> None:
        """An answer was sent, or broken off: take up what has come since."""
        self._server_state.total_requests += 1
        if self.transport.is_closing():
            self._linger(self._loop.time())
            return
        self.flow.resume_reading()
        if self._queued:
            cycle = self._queued.pop()
            self._start(cycle)
            self.due = self._loop.time() + self._limits.body_s if cycle.more_body else NEVER
        elif not self._held:
            self.due = self._loop.time() + self._limits.keep_alive_s
        if self._held and not self._queued:
            held, self._held = bytes(self._held), bytearray()
            self.data_received(held)

    def _refuse(self, end: ConnectionEnd) -> None:
        """Read nothing more. Answer, unless an answer is on its way or owed to an earlier request."""
        self._guard.ended[end] += 1
        cycle = self._cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body or cycle.response_started or cycle is not self.running:
                self._close_after_answers()
                return
            self.refused_as = end
            cycle.disconnected = True
            cycle.tell()
        elif self._guard.on_refused is not None:
            self._guard.on_refused(end, self._of_connection["client"])
        self._is_deaf = True
        self.transport.write(bare_refusal(REFUSALS[end]))
        if self.transport.can_write_eof():  # TLS has no such half
            self.transport.write_eof()
        self._linger(self._loop.time())

    def _close_after_answers(self) -> None:
        """Requests that came whole are answered, then the connection closes."""
        self._is_deaf = True
        self._held.clear()
        self.flow.resume_reading()
        if self._queued and self._queued[0].more_body:
            self._queued.popleft()
            self._cycle = self._queued[0] if self._queued else self.running
        assert self._cycle is not None, "an answer is owed"
        self._cycle.keep_alive = False
        self._phase = IDLE
        self.due = NEVER

    def _linger(self, now: float) -> None:
        """Give the client a moment to read what was sent last. What it still sends is dropped: a connection
        that is closed on unread bytes is reset, and the client might never see the answer."""
        self._phase = LINGER
        self.due = now + LINGER_S

    def _is_answering(self) -> bool:
        return self.running is not None and not self.running.response_complete

    def _leave(self) -> None:
        self.has_left = True
        on_leave, self.on_leave = self.on_leave, None
        if on_leave is not None:
            on_leave()
