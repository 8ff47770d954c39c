"""A worker that takes nothing but requests that can be read in one way, and remembers what else came."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.router.stub_worker import response

_LINE = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.1")
_FIELD = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?((?:[!-~\x80-\xff](?:[\t -~\x80-\xff]*[!-~\x80-\xff])?)?)"
)


@dataclass
class StrictWorker:
    """Answers each request with its target and body.

    Attributes:
        requests: method, target, body.
        faults: bytes that were no request of the strict form.
    """

    port: int = 0
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    faults: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        head = b""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, num_bytes = self._read(head[:-4])
                body = await reader.readexactly(num_bytes)
                self.requests.append((method, target, body))
                writer.write(response(target.encode() + b" " + body))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.faults.append(error.partial)
        except ValueError:
            self.faults.append(head)
        finally:
            writer.close()

    def _read(self, head: bytes) -> tuple[str, str, int]:
        """Method, target, bytes of the body.

        Raises:
            ValueError: it is not of the strict form.
        """
        first, *lines = head.split(b"\r\n")
        line, fields = _LINE.fullmatch(first), [_FIELD.fullmatch(one) for one in lines]
        if line is None or None in fields:
            raise ValueError
        names = [one[1].lower() for one in fields if one is not None]
        lengths = [
            one[2] for one in fields if one is not None and one[1].lower() == b"content-length"
        ]
        if names.count(b"host") != 1 or b"transfer-encoding" in names or len(lengths) > 1:
            raise ValueError
        return line[1].decode(), line[2].decode(), int(lengths[0]) if lengths else 0


@asynccontextmanager
async def strict_worker() -> AsyncIterator[StrictWorker]:
    """A listening worker."""
    worker = StrictWorker()
    server = await asyncio.start_server(worker.serve, "127.0.0.1", 0)
    worker.port = server.sockets[0].getsockname()[1]
    try:
        yield worker
    finally:
        server.close()
