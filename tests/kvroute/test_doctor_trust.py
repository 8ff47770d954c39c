"""The doctor at https: the system's authorities, or those that it is given, as the router has them."""

import asyncio

import pytest

from tests.kvroute.command import kvroute
from tests.kvroute.test_cli import invoke
from tests.router.stub_worker import response
from tests.router.test_worker_tls import AUTHORITY, FILES, worker_context
from tests.router.upstream_client import raw_server

LISTEN = ("--listen", "0")
OURS = ("--cert-file", str(FILES / "router.pem"), "--key-file", str(FILES / "router.key"))


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(response(b"{}"))
    await writer.drain()


@pytest.mark.parametrize(
    ("flags", "asks", "words"),
    [
        ((), False, "its certificate is not trusted: unable to get local issuer certificate"),
        (("--ca-file", str(AUTHORITY)), False, "/v1/models names no model"),
        (("--ca-file", str(AUTHORITY), *OURS), True, "/v1/models names no model"),
    ],
)
async def test_whom_it_trusts(flags: tuple[str, ...], asks: bool, words: str) -> None:
    async with raw_server(answer, tls=worker_context(asks=asks)) as url:
        base = url.replace("127.0.0.1", "localhost")
        ended = await kvroute("doctor", base, *LISTEN, *flags)
    told = " ".join(ended.stdout.split())
    assert words in told, ended.stdout
    assert ("--ca-file" in told) == ("not trusted" in words)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--ca-file", "/nowhere"), "--ca-file: /nowhere cannot be read: no such file"),
        (("--ca-file", "/dev/null"), "--ca-file: /dev/null holds no certificates in PEM"),
        (("--key-file", str(AUTHORITY)), "--key-file: is of no use without cert_file"),
    ],
)
def test_files_that_do_not_fit_are_refused(flags: tuple[str, ...], words: str) -> None:
    code, output = invoke("doctor", "x", *flags)
    assert code == 2
    assert words in output
