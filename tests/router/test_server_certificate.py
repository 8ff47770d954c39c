"""TLS of the ports: who is spoken to, what is spoken, and certificates that change while the ports are open."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from router.config import ConfigError, load_config
from router.connections import NUM_SURPLUS, ConnectionEnd, ConnectionGuard, ConnectionLimits
from router.file_watch import FileWatch, Reload
from router.hang_up import HangUp
from router.listener_tls import ListenerTls
from router.ports import PortServer, listen, make_server
from router.server_certificate import ServerCertificate
from router.tls_door import TlsDoor
from tests.router.certificates import make_certificate
from tests.router.stub_engine import stub_engine, until
from tests.router.stub_worker import LAST_CHUNK, SSE_HEAD, Peer, chunk
from tests.router.test_service import BODY, service

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("tls")
    return make_certificate(directory, "first"), make_certificate(directory, "second")


@pytest.fixture
def files(tmp_path: Path, pairs: tuple[Pair, Pair]) -> Pair:
    """Files that hold the first pair, to be overwritten."""
    return put(pairs[0], (tmp_path / "tls.crt", tmp_path / "tls.key"))


def put(pair: Pair, files: Pair) -> Pair:
    for source, target in zip(pair, files, strict=True):
        shutil.copyfile(source, target)
    return files


def trusting(*certs: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for cert in certs:
        context.load_verify_locations(cert)
    return context


async def hello(scope: object, receive: object, send: object) -> None:
    """An application."""
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )  # type: ignore[operator]
    await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]


@asynccontextmanager
async def port(
    certificate: ServerCertificate, guard: ConnectionGuard | None = None
) -> AsyncIterator[int]:
    """A port with this certificate."""
    guard = guard or ConnectionGuard(ConnectionLimits())
    server: PortServer = make_server(hello, guard, grace_s=1, tls=certificate.context)
    with listen("127.0.0.1", 0) as sock:
        task = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            yield sock.getsockname()[1]
        finally:
            server.abort()
            server.stop()
            await task


async def name_at(number: int, context: ssl.SSLContext, host: str | None = None) -> str:
    """The name in the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", number, ssl=context, server_hostname=host or "127.0.0.1"
    )
    subject = writer.get_extra_info("peercert")["subject"]
    writer.transport.abort()
    return str(subject[0][0][1])


@contextlib.contextmanager
def watched(certificate: ServerCertificate, check_s: float) -> Iterator[None]:
    """Within the block files are looked at."""
    task = asyncio.get_running_loop().create_task(
        FileWatch({"the certificate": certificate}, HangUp(), check_s).run()
    )
    try:
        yield
    finally:
        task.cancel()


async def test_both_ports_speak_tls(pairs: tuple[Pair, Pair]) -> None:
    (data_cert, data_key), (control_cert, control_key) = pairs
    settings = {
        "tls": {"cert_file": data_cert, "key_file": data_key},
        "control_tls": {"cert_file": control_cert, "key_file": control_key, "min_version": "1.3"},
    }

    async def stream(peer: Peer) -> None:
        await peer.send(SSE_HEAD + chunk(b"data: 1\n\n") + chunk(b"data: [DONE]\n\n") + LAST_CHUNK)

    async with stub_engine(script=stream) as engine, service(engine, **settings) as plain:
        url, control_url = (
            str(one.base_url).replace("http:", "https:") for one in (plain.data, plain.control)
        )
        async with (
            httpx.AsyncClient(base_url=url, verify=trusting(data_cert)) as data,
            httpx.AsyncClient(base_url=control_url, verify=trusting(control_cert)) as control,
        ):
            async with asyncio.timeout(10):
                while (await data.get("/ready")).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            answer = await data.post("/v1/chat/completions", json=BODY)
            assert answer.text == "data: 1\n\ndata: [DONE]\n\n"
            large = await data.post("/v1/chat/completions", json={**BODY, "x": "y" * 500_000})
            assert large.status_code == 200
            assert (await control.get("/workers")).status_code == 200
            metrics = (await control.get("/metrics")).text
            assert 'kvroute_certificate_reloads_total{outcome="taken",port="data"} 0.0' in metrics
            with pytest.raises(httpx.ConnectError):
                await httpx.AsyncClient(verify=trusting(control_cert)).get(f"{url}/ready")
            old = trusting(control_cert)
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(httpx.ConnectError):
                await httpx.AsyncClient(verify=old).get(f"{control_url}/health")
        with pytest.raises(httpx.TransportError):
            await plain.data.get("/health")


async def test_what_is_no_request_is_refused_within_tls(files: Pair) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    async with port(certificate) as number:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", number, ssl=trusting(files[0]), server_hostname="localhost"
        )
        writer.write(b"nonsense\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in head
        writer.transport.abort()


async def test_new_files_are_taken_and_open_connections_stay(
    files: Pair, pairs: tuple[Pair, Pair], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    both = trusting(pairs[0][0], pairs[1][0])
    async with port(certificate) as number, httpx.AsyncClient(verify=both) as kept:
        url = f"https://127.0.0.1:{number}/"
        assert (await kept.get(url)).text == "ok"
        assert await name_at(number, both) == "first"
        with watched(certificate, 0.01):
            put(pairs[1], files)
            await until(lambda: certificate.reloads[Reload.TAKEN] > 0)
        assert await name_at(number, both) == "second"
        assert await name_at(number, both, "localhost") == "second"
        assert (await kept.get(url)).text == "ok"
    assert "the certificate was read again" in caplog.text


async def test_files_that_do_not_fit_are_told_and_not_taken(
    files: Pair, pairs: tuple[Pair, Pair], caplog: pytest.LogCaptureFixture
) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    async with port(certificate) as number:
        with watched(certificate, 0.01):
            shutil.copyfile(pairs[1][0], files[0])
            await until(lambda: "key_file: " in caplog.text)
            files[0].unlink()
            await until(lambda: "no such file" in caplog.text)
            assert await name_at(number, trusting(pairs[0][0])) == "first"
            put(pairs[1], files)
            await until(lambda: certificate.reloads[Reload.TAKEN] > 0)
        assert await name_at(number, trusting(pairs[1][0])) == "second"
    assert certificate.reloads[Reload.FAILED] >= 2
    assert "the certificate stays as it was: key_file: " in caplog.text


async def test_sighup_takes_them_at_once(files: Pair, pairs: tuple[Pair, Pair]) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    with watched(certificate, 3600.0):
        await asyncio.sleep(0)
        put(pairs[1], files)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: certificate.reloads[Reload.TAKEN] > 0)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: certificate.reloads[Reload.TAKEN] > 1)


async def test_a_handshake_has_its_time(files: Pair) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    async with (
        port(certificate, ConnectionGuard(ConnectionLimits(head_s=0.1))) as number,
        asyncio.timeout(5),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        assert await reader.read() == b""
        writer.close()


@asynccontextmanager
async def bare(number: int) -> AsyncIterator[asyncio.StreamReader]:
    """A connection that begins no handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    try:
        yield reader
    finally:
        writer.transport.abort()


async def test_handshakes_count_as_connections(files: Pair) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    guard = ConnectionGuard(ConnectionLimits(max_connections=2))
    bound = guard.limits.max_connections + NUM_SURPLUS
    async with port(certificate, guard=guard) as number, contextlib.AsyncExitStack() as stack:
        for _ in range(bound):
            await stack.enter_async_context(bare(number))
        await until(lambda: guard.num_shaking == bound)
        async with bare(number) as reader, asyncio.timeout(5):
            assert await reader.read() == b""
        assert guard.ended == {ConnectionEnd.TOO_MANY: 1}
        await stack.aclose()
        await until(lambda: guard.num_shaking == 0)
        assert guard.ended[ConnectionEnd.HANDSHAKE] == bound
        assert await name_at(number, trusting(files[0])) == "first"


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", b"\x00" * 4096]
)
async def test_what_is_no_handshake_is_closed_and_counted(files: Pair, data: bytes) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    guard = ConnectionGuard(ConnectionLimits(head_s=0.2))
    async with port(certificate, guard=guard) as number:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(data)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in await reader.read()
        writer.transport.abort()
        await until(lambda: guard.ended[ConnectionEnd.HANDSHAKE] == 1)
        assert (guard.num_shaking, guard.num_open) == (0, 0)


async def test_a_port_that_closes_leaves_no_handshake(files: Pair) -> None:
    certificate = ServerCertificate(ListenerTls(cert_file=files[0], key_file=files[1]))
    guard = ConnectionGuard(ConnectionLimits())
    async with contextlib.AsyncExitStack() as stack:
        async with port(certificate, guard=guard) as number:
            reader = await stack.enter_async_context(bare(number))
            await until(lambda: guard.num_shaking == 1)
        assert guard.num_shaking == 0
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""


def test_the_configuration_names_what_is_wrong(files: Pair, pairs: tuple[Pair, Pair]) -> None:
    with pytest.raises(ValidationError, match="is not the key of"):
        ListenerTls(cert_file=files[0], key_file=pairs[1][1])
    for fields, message in (
        ({"cert_file": "/nowhere.pem"}, "tls.cert_file: /nowhere.pem cannot be read"),
        ({"cert_file": str(files[1])}, "tls: cert_file: .* holds no certificate in PEM"),
        ({"cert_file": str(files[0])}, "tls: key_file: .* holds no private key in PEM"),
        ({"cert_file": str(files[0]), "min_version": "1.1"}, "tls.min_version"),
        ({}, "tls.cert_file"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(None, {"tls": fields}, {})
    environ = {"KVROUTE_TLS__CERT_FILE": str(files[0]), "KVROUTE_TLS__KEY_FILE": str(files[1])}
    found = load_config(None, {}, environ).tls
    assert found is not None
    assert found.files == files


async def test_a_handshake_that_is_ended_before_it_begins_is_counted_no_more(files: Pair) -> None:
    guard = ConnectionGuard(ConnectionLimits())
    tls = ListenerTls(cert_file=files[0], key_file=files[1]).context()
    with listen("127.0.0.1", 0) as sock:
        door = TlsDoor(sock, asyncio.Protocol, tls, guard)
        async with bare(sock.getsockname()[1]) as reader, asyncio.timeout(5):
            door.open()
            while not guard.num_shaking:  # noqa: ASYNC110
                await asyncio.sleep(0)
            door.close()
            await door.wait_closed()
            assert guard.num_shaking == 0
            assert await reader.read() == b""
