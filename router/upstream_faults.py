"""How a worker can fail a request."""

from enum import StrEnum


class Fault(StrEnum):
    """How a worker failed a request."""

    CONNECT = "connect"  # refused, unresolved, or no connection in time
    RESET = "reset"  # closed or reset before or within its answer
    TIMEOUT = "timeout"  # silent for too long
    MALFORMED = "malformed"  # what it sent is no HTTP
    UNHEALTHY = "unhealthy"  # silent, while its health says that it will not answer


class UpstreamError(Exception):
    """A worker failed.

    Attributes:
        fault: how.
        detail: in words.
        is_stale: the connection had served before and broke without a byte of this answer, at most
            ``STALE_S`` after the request went out: perhaps it was closed while idle, and the request never seen.
    """

    def __init__(self, fault: Fault, detail: str, *, is_stale: bool = False) -> None:
        super().__init__(f"{fault}: {detail}")
        self.fault = fault
        self.detail = detail
        self.is_stale = is_stale
