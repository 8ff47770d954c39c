"""Why a call failed, in words that are true: clients of HTTP hide what the system or TLS said."""

import os
import socket
import ssl


def cause_of(error: BaseException) -> str:
    """What TLS or the system says of it, where one of them does; else its own words.

    An error of TLS is an ``OSError`` whose number is OpenSSL's, not the system's.
    """
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {inner.verify_message.rstrip('.')}"
        if isinstance(inner, ssl.SSLError):
            return f"TLS failed: {_words(inner)}"
        if isinstance(inner, socket.gaierror):
            return str(inner.strerror).lower()
        if isinstance(inner, OSError) and inner.errno is not None and inner.errno > 0:
            return os.strerror(inner.errno).lower()
        inner = inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__


def _words(error: ssl.SSLError) -> str:
    if error.reason == "WRONG_VERSION_NUMBER":
        return "what answers is no TLS, perhaps plain HTTP"
    return error.reason.replace("_", " ").lower() if error.reason else str(error)
