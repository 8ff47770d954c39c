"""Workers that fail, in every way and at every point of an exchange."""

import json

from tests.router.front_door import WireAnswer
from tests.router.stub_worker import Peer, answering, chunk, response

OK = answering(response(b'{"ok":true}'))


async def close_at_once(peer: Peer) -> None:
    peer.close()


async def reset_at_once(peer: Peer) -> None:
    peer.reset()


async def garbage(peer: Peer) -> None:
    await peer.send(b"SSH-2.0-OpenSSH\r\n\r\n")
    peer.close()


async def two_lengths(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc")
    peer.close()


async def odd_status(peer: Peer) -> None:
    await peer.send(response(b"{}", status=799))


async def control_bytes(peer: Peer) -> None:
    await peer.send(response(b"{}", headers=(("X-A", "a\x01b"),)))


async def no_token(peer: Peer) -> None:
    await peer.send(response(b"{}", headers=(("X(A)", "1"),)))


async def switching(peer: Peer) -> None:
    await peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    )


async def close_after_headers(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
    peer.close()


async def reset_within_length(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    peer.reset()


async def close_within_chunks(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"abc"))
    peer.close()


async def reset_without_length(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\n\r\nabc")
    await peer.reader.read(0)
    peer.reset()


def code(answer: WireAnswer) -> str:
    """The code of an error body."""
    return str(json.loads(answer.body)["error"]["code"])


MALFORMED = [garbage, two_lengths, odd_status, control_bytes, no_token, switching]
