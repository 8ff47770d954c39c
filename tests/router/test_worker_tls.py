"""TLS to workers: one trust for probes and requests, certificates of the router's own, what is told of faults."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from router.config import ConfigError, load_config
from router.dialer import Dialer
from router.hops import Hops
from router.probe import ProbeTimeouts, open_prober
from router.sibling import SiblingError, Siblings
from router.upstream import Fault, UpstreamError, UpstreamTimeouts, open_upstream
from router.worker_tls import WorkerTls
from tests.router.stub_engine import StubEngine, stub_engine
from tests.router.stub_worker import response
from tests.router.test_service import BODY, service
from tests.router.upstream_client import raw_server

FILES = Path(__file__).parents[1] / "data" / "tls"
AUTHORITY, STRANGER = FILES / "authority.pem", FILES / "localhost.pem"
OURS = {"cert_file": FILES / "router.pem", "key_file": FILES / "router.key"}
ONE = {"min_workers": 1}
UNTRUSTED = "its certificate is not trusted: unable to get local issuer certificate"


def worker_context(*, asks: bool = False) -> ssl.SSLContext:
    """A worker's, for the name localhost; perhaps it asks who we are."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / "worker.pem", FILES / "worker.key")
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(AUTHORITY)
    return context


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Any request."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(response(b"{}"))
    await writer.drain()


async def faults(
    tls: WorkerTls, host: str = "localhost", *, asks: bool = False
) -> list[str | None]:
    """What a request and a probe say of a worker; None where they are answered."""
    dialer = Dialer(asyncio.get_running_loop(), tls.context())
    async with (
        raw_server(answer, tls=worker_context(asks=asks)) as url,
        open_upstream(UpstreamTimeouts(), dialer) as client,
        open_prober(ProbeTimeouts(), None, Hops("here"), dialer) as prober,
    ):
        base = url.replace("127.0.0.1", host).removesuffix("/")
        request = None
        try:
            await client.send("GET", f"{base}/x", (), b"")
        except UpstreamError as error:
            request = error.detail
        probe = await prober.why_unhealthy(base)
        return [request, None if probe is None else probe.removeprefix(f"{base}/health: ")]


async def test_an_authority_of_the_operators_is_trusted() -> None:
    assert await faults(WorkerTls(ca_file=AUTHORITY)) == [None, None]


async def test_by_default_the_system_and_its_variable_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await faults(WorkerTls()) == [UNTRUSTED] * 2
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    assert await faults(WorkerTls()) == [None, None]
    assert await faults(WorkerTls(ca_file=STRANGER)) == [UNTRUSTED] * 2


async def test_a_certificate_of_another_name() -> None:
    said = await faults(WorkerTls(ca_file=AUTHORITY), "127.0.0.1")
    words = "its certificate is not trusted: IP address mismatch, certificate is not valid for '127.0.0.1'"
    assert said == [words] * 2


async def test_a_worker_of_plain_http_at_an_https_url() -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(response(b"", status=400))

    context = WorkerTls().context()
    async with (
        raw_server(refuses) as url,
        open_prober(
            ProbeTimeouts(), None, Hops("here"), Dialer(asyncio.get_running_loop(), context)
        ) as prober,
    ):
        base = url.replace("http://", "https://").removesuffix("/")
        probe = await prober.why_unhealthy(base)
    assert probe == f"{base}/health: TLS failed: what answers is no TLS, perhaps plain HTTP"


async def test_without_verification_whoever_answers_is_taken() -> None:
    assert await faults(WorkerTls(verify=False), "127.0.0.1") == [None, None]


async def test_a_worker_that_asks_who_we_are() -> None:
    assert None not in await faults(WorkerTls(ca_file=AUTHORITY), asks=True)
    known = WorkerTls.model_validate({"ca_file": AUTHORITY, **OURS})
    assert await faults(known, asks=True) == [None, None]


async def test_a_worker_that_speaks_no_tls() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"{}"))
        await writer.drain()

    async with (
        raw_server(speak) as url,
        open_upstream(UpstreamTimeouts()) as client,
    ):
        with pytest.raises(UpstreamError, match="TLS failed: ") as error:
            await client.send("GET", url.replace("http:", "https:"), (), b"")
        assert error.value.fault is Fault.CONNECT


async def ends(*, is_told: bool) -> None:
    """An answer that is as long as its connection lives, ended with and without TLS saying so."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nabc")
        await writer.drain()
        await was_read.wait()
        if not is_told:
            plain = writer.get_extra_info("socket")
            with socket.fromfd(plain.fileno(), plain.family, plain.type) as same:
                same.shutdown(socket.SHUT_WR)
            await reader.read()

    was_read = asyncio.Event()
    dialer = Dialer(asyncio.get_running_loop(), WorkerTls(ca_file=AUTHORITY).context())
    async with (
        raw_server(speak, tls=worker_context()) as url,
        open_upstream(UpstreamTimeouts(), dialer) as client,
    ):
        answer = await client.send("GET", url.replace("127.0.0.1", "localhost"), (), b"")
        assert await answer.read() == b"abc"
        was_read.set()
        if is_told:
            assert await answer.read() == b""
            assert answer.is_complete
        else:
            with pytest.raises(UpstreamError) as error:
                await answer.read()
            assert error.value.fault is Fault.RESET


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_body_that_ends_with_its_connection_is_whole_if_tls_says_so(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], *, is_told: bool
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(ends(is_told=is_told))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"ca_file": "none.pem"},
            "worker_tls.ca_file: none.pem cannot be read: no such file or directory",
        ),
        (
            {"ca_file": FILES / "router.key"},
            "worker_tls.ca_file: {}/router.key holds no certificates in PEM",
        ),
        ({"ca_file": FILES}, "worker_tls.ca_file: {} cannot be read: is a directory"),
        (
            {"cert_file": "none.pem"},
            "worker_tls.cert_file: none.pem cannot be read: no such file or directory",
        ),
        (
            {"cert_file": FILES / "router.key"},
            "worker_tls: cert_file: {}/router.key holds no certificate in PEM",
        ),
        (
            {"cert_file": FILES / "router.pem"},
            "worker_tls: key_file: {}/router.pem holds no private key in PEM without a passphrase",
        ),
        (
            OURS | {"key_file": FILES / "router-locked.key"},
            "worker_tls: key_file: {}/router-locked.key holds no private key in PEM without a passphrase",
        ),
        (
            OURS | {"key_file": FILES / "worker.key"},
            "worker_tls: key_file: {0}/worker.key is not the key of {0}/router.pem",
        ),
        (
            {"key_file": FILES / "router.key"},
            "worker_tls: key_file: is of no use without cert_file",
        ),
        (
            {"ca_file": AUTHORITY, "verify": False},
            "worker_tls: ca_file: is of no use where verify is false",
        ),
    ],
)
def test_what_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, {"worker_tls": given}, {})
    assert str(error.value) == message.format(FILES)


def test_the_environment_sets_it() -> None:
    config = load_config(None, {}, {"KVROUTE_WORKER_TLS__CA_FILE": str(AUTHORITY)})
    assert config.worker_tls == WorkerTls(ca_file=AUTHORITY)


@asynccontextmanager
async def in_front_of(engine: StubEngine) -> AsyncIterator[str]:
    """TLS before an engine, byte by byte; yields its URL."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind = await asyncio.open_connection("127.0.0.1", engine.worker.port)
        await asyncio.gather(
            pipe(reader, behind[1]), pipe(behind[0], writer), return_exceptions=True
        )

    async with raw_server(serve, tls=worker_context()) as url:
        yield url.replace("127.0.0.1", "localhost").removesuffix("/")


async def test_a_router_before_workers_of_a_private_authority() -> None:
    async with (
        stub_engine() as engine,
        in_front_of(engine) as url,
        service(workers=[url], ready=ONE, worker_tls={"ca_file": AUTHORITY}) as router,
    ):
        await router.ready()
        answer = await router.data.post("/v1/chat/completions", json=BODY)
        assert answer.status_code == 200, answer.text


async def test_a_router_that_does_not_trust_its_worker_is_not_ready_and_says_why() -> None:
    async def said() -> str:
        return json.dumps(await router.workers())

    async with (
        stub_engine() as engine,
        in_front_of(engine) as url,
        service(workers=[url], ready=ONE) as router,
    ):
        async with asyncio.timeout(5):
            while UNTRUSTED not in await said():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert not await router.is_ready()


async def test_siblings_are_trusted_as_workers_are() -> None:
    async with raw_server(answer, tls=worker_context()) as url:
        base = url.replace("127.0.0.1", "localhost").removesuffix("/")
        ours = Siblings(None, 5.0, WorkerTls(ca_file=AUTHORITY).context())
        assert [line async for line in ours.dump(base, "w")] == [b"{}"]
        with pytest.raises(SiblingError, match=UNTRUSTED):
            [line async for line in Siblings(None, 5.0).dump(base, "w")]
