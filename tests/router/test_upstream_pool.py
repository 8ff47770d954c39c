"""Connections that are kept: which is taken, which go, and when."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from router.upstream import Fault, UpstreamError, UpstreamTimeouts
from router.upstream_connection import UpstreamConnection
from router.upstream_pool import MAX_IDLE, MAX_ORIGINS, Origin, UpstreamPool
from tests.router.stub_worker import StubWorker, answering, response, stub_worker

OK = answering(response(b"{}"))
# A quarter of the shortest is how often the pool looks for what has overstayed.
OFTEN = UpstreamTimeouts(connect_s=5, first_byte_s=0.04, idle_s=0.04)


@asynccontextmanager
async def pool_before(
    worker: StubWorker, timeouts: UpstreamTimeouts | None = None
) -> AsyncIterator[tuple[UpstreamPool, Origin]]:
    """A pool, and the worker's origin in it."""
    pool = UpstreamPool(timeouts or UpstreamTimeouts(), asyncio.get_running_loop())
    try:
        yield pool, pool.origin(worker.url)
    finally:
        pool.close()
        await asyncio.sleep(0)
        assert pool.num_open == 0
        pool.check()


async def served(pool: UpstreamPool, origin: Origin, count: int) -> list[UpstreamConnection]:
    """So many connections, idle in this order."""
    connections = [await pool.connect(origin) for _ in range(count)]
    for connection in connections:
        answer = connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", is_head_request=False)
        await answer.begun()
        while not answer.is_complete:
            await answer.read()
    pool.check()
    return connections


async def until_open(pool: UpstreamPool, count: int) -> None:
    """Until so many connections are open."""
    async with asyncio.timeout(5):
        while pool.num_open != count:  # noqa: ASYNC110  there is nothing to wait on from outside
            await asyncio.sleep(0.001)
    pool.check()


@pytest.mark.parametrize(
    ("base", "host", "port", "is_tls", "host_field"),
    [
        ("http://a", "a", 80, False, "a"),
        ("http://a:80", "a", 80, False, "a"),
        ("http://a:8000", "a", 8000, False, "a:8000"),
        ("https://a.b", "a.b", 443, True, "a.b"),
        ("https://a.b:80", "a.b", 80, True, "a.b:80"),
        ("http://[::1]:30000", "::1", 30000, False, "[::1]:30000"),
        ("http://[fe80::1%eth0]", "fe80::1%eth0", 80, False, "[fe80::1]"),
        ("HTTP://A:1", "a", 1, False, "a:1"),
    ],
)
async def test_origins(base: str, host: str, port: int, is_tls: bool, host_field: str) -> None:
    pool = UpstreamPool(UpstreamTimeouts(), asyncio.get_running_loop())
    origin = pool.origin(base)
    assert (origin.host, origin.port, origin.is_tls) == (host, port, is_tls)
    assert origin.host_field == host_field
    assert pool.origin(base) is origin


@pytest.mark.parametrize("base", ["", "a", "ftp://a", "http://", "http://:80", "http://a:x"])
async def test_what_is_no_origin(base: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the parser's own among them
        UpstreamPool(UpstreamTimeouts(), asyncio.get_running_loop()).origin(base)


async def test_the_last_used_is_used_next() -> None:
    async with stub_worker(OK) as worker, pool_before(worker) as (pool, origin):
        first, second = await served(pool, origin, 2)
        assert pool.take(origin) is second
        assert pool.take(origin) is first
        assert pool.take(origin) is None


async def test_what_has_idled_too_long_is_not_used() -> None:
    async with stub_worker(OK) as worker, pool_before(worker) as (pool, origin):
        old, new = await served(pool, origin, 2)
        new.due = old.due = 0.0
        assert pool.take(origin) is None
        await until_open(pool, 0)


async def test_what_nobody_takes_is_closed_in_time() -> None:
    async with stub_worker(OK) as worker, pool_before(worker, OFTEN) as (pool, origin):
        _, kept, old = await served(pool, origin, 3)
        origin.idle[0].due = old.due = 0.0
        await until_open(pool, 1)
        assert origin.idle == [kept]


async def test_one_that_the_worker_closes_is_not_used() -> None:
    async with stub_worker(OK) as worker, pool_before(worker) as (pool, origin):
        for connection in await served(pool, origin, 3):
            assert connection.is_usable
            connection.eof_received()
            connection.close()
        assert pool.take(origin) is None
        await until_open(pool, 0)


async def test_idle_connections_are_bounded() -> None:
    async with stub_worker(OK) as worker, pool_before(worker) as (pool, origin):
        first, *rest = await served(pool, origin, MAX_IDLE + 1)
        assert origin.idle == rest
        await until_open(pool, MAX_IDLE)
        assert not first.is_usable


async def test_origins_are_bounded() -> None:
    async with stub_worker(OK) as worker, pool_before(worker) as (pool, origin):
        await served(pool, origin, 1)
        for number in range(MAX_ORIGINS):
            pool.origin(f"http://w{number}")
        assert pool.origin(worker.url) is origin
        assert len(origin.idle) == 1


async def test_idle_ones_can_be_dropped_together() -> None:
    async with stub_worker(OK) as worker, pool_before(worker) as (pool, origin):
        await served(pool, origin, 3)
        pool.drop_idle(origin)
        assert pool.take(origin) is None
        await until_open(pool, 0)


@pytest.mark.parametrize("base", ["http://127.0.0.1:9", f"http://{'x' * 70}.y"])
async def test_nobody_there(base: str) -> None:
    pool = UpstreamPool(UpstreamTimeouts(), asyncio.get_running_loop())
    with pytest.raises(UpstreamError) as error:
        await pool.connect(pool.origin(base))
    assert error.value.fault is Fault.CONNECT
    assert pool.num_open == 0
