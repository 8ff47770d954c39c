"""What a peer said before it reset the connection, read when the transport has given up.

A worker that refuses a large request may answer and close without reading the rest. Its kernel then resets the
connection, the next write here fails, and a transport that cannot write reads no more either; but what had come
stays in the socket until that is closed.
"""

import asyncio
import os

MAX_BYTES = 64 * 1024  # of them; a longer answer breaks off


def last_words(transport: asyncio.BaseTransport) -> bytes:
    """Within ``connection_lost``. Empty where nothing had come, and under TLS, which cannot be read from outside."""
    sock = transport.get_extra_info("socket")
    if sock is None or transport.get_extra_info("ssl_object") is not None:
        return b""
    try:
        return os.read(sock.fileno(), MAX_BYTES)
    except OSError:  # the reset, nothing to read, or no socket any more
        return b""
