"""Did the peer itself end the connection? A bare FIN may come from anybody on the way; TLS tells them apart."""

import asyncio
import ssl


def is_encrypted(transport: asyncio.BaseTransport) -> bool:
    """Does it speak TLS?"""
    return transport.get_extra_info("ssl_object") is not None


def is_told(transport: asyncio.BaseTransport) -> bool:
    """Within ``eof_received``: did the peer say so, where only it can?"""
    tls = transport.get_extra_info("ssl_object")
    if tls is None:
        return True
    try:
        return not tls.read(1)
    except ssl.SSLError as error:
        return isinstance(error, ssl.SSLZeroReturnError)
