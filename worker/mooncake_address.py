"""Where a Mooncake store is, and what a worker brings to it: read from one line of text.

    mooncake://HOST:PORT[?metadata=…][&segment_mb=…][&local=…]

HOST and PORT are the master's. The master may serve the metadata as well; its HTTP metadata server listens
on port 8080 unless told otherwise, which is the default here.
"""

from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qsl, urlsplit

MOONCAKE_PREFIX = "mooncake://"
NO_METADATA_SERVER = "P2PHANDSHAKE"
PROTOCOL = "tcp"
_METADATA_PORT = 8080
_SEGMENT_MB = 64
_MAX_SEGMENT_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class MooncakeAddress:
    """One store.

    Attributes:
        master: ``HOST:PORT`` of ``mooncake_master``.
        metadata: URL of the HTTP metadata server, or ``P2PHANDSHAKE`` where clients ask each other.
        segment_mb: memory that this worker adds to the store, MiB; what is in it goes with the worker.
        local: host by which other workers reach this one; None = its address on the way to the master.
    """

    master: str
    metadata: str
    segment_mb: int = _SEGMENT_MB
    local: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the form above.

        Raises:
            ValueError: it is not of that form; the message says what is wrong.
        """
        parts = urlsplit(text)
        if f"{parts.scheme}://" != MOONCAKE_PREFIX or not parts.hostname or parts.port is None:
            raise ValueError("mooncake://HOST:PORT of the mooncake_master")
        if parts.path not in ("", "/") or parts.fragment or parts.username is not None:
            raise ValueError("mooncake://HOST:PORT?name=value&…, nothing else")
        given = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
        if unknown := given.keys() - {"metadata", "segment_mb", "local"}:
            raise ValueError(f"mooncake: no {sorted(unknown)[0]}, but metadata, segment_mb, local")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        metadata = given.get("metadata", f"http://{host}:{_METADATA_PORT}/metadata")
        return cls(
            f"{host}:{parts.port}",
            _checked_metadata(metadata),
            _checked_segment(given.get("segment_mb", str(_SEGMENT_MB))),
            given.get("local") or None,
        )

    def server_config(self) -> dict[str, object]:
        """As SGLang's extra configuration of its storage backend names these things."""
        return {
            "master_server_address": self.master,
            "metadata_server": self.metadata,
            "protocol": PROTOCOL,
            "global_segment_size": self.segment_mb << 20,
        }


def _checked_metadata(text: str) -> str:
    parts = urlsplit(text)
    if text != NO_METADATA_SERVER and (parts.scheme != "http" or not parts.hostname):
        raise ValueError(f"mooncake: metadata is http://HOST:PORT/metadata or {NO_METADATA_SERVER}")
    return text


def _checked_segment(text: str) -> int:
    if not (
        text.isascii() and text.isdigit() and len(text) < 8 and 0 < int(text) <= _MAX_SEGMENT_MB
    ):
        raise ValueError(f"mooncake: segment_mb is 1 to {_MAX_SEGMENT_MB}")
    return int(text)
