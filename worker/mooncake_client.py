"""A Mooncake store as a page client: its Python package, loaded when such a storage is opened.

Source: Mooncake 0.3.13 ``MooncakeDistributedStore``: calls release the interpreter lock; 0 is success; a
negative ``batch_is_exist`` is an error of the master; ``get_batch`` gives empty bytes for what is not there.
"""

import os
import socket
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from worker.mooncake_address import NO_METADATA_SERVER, PROTOCOL, MooncakeAddress
from worker.remote_storage import StoreError

_BUFFER_BYTES = 32 << 20
"""For what is on its way: five calls of a batch of the largest pages fit."""
_REACH_S = 3.0
_PACKAGE = "mooncake-transfer-engine-non-cuda"
_LIBRARIES = "libibverbs1 librdmacm1 libnuma1"


class MooncakeUnavailableError(OSError):
    """No Mooncake store can be opened here; the message says what is missing."""


class Store(Protocol):
    """What is used of ``MooncakeDistributedStore`` once it is set up."""

    def batch_is_exist(self, keys: list[str], /) -> list[int]: ...
    def get_batch(self, keys: list[str], /) -> list[bytes]: ...
    def put_batch(self, keys: list[str], values: list[bytes], /) -> int: ...
    def close(self) -> int: ...


class MooncakeClient:
    """A ``PageClient`` over a store that is set up."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def held(self, keys: Sequence[str]) -> list[bool]:
        """Which pages the master knows.

        Raises:
            StoreError: it does not answer.
        """
        answers = self._store.batch_is_exist(list(keys))
        if len(answers) != len(keys) or min(answers, default=0) < 0:
            raise StoreError(f"mooncake: the master answers {min(answers, default=0)}")
        return [answer == 1 for answer in answers]

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Contents; None for a page that went meanwhile."""
        contents = self._store.get_batch(list(keys))
        if len(contents) != len(keys):
            raise StoreError(f"mooncake: {len(contents)} contents of {len(keys)} pages")
        return [content or None for content in contents]

    def put(self, keys: Sequence[str], contents: Sequence[bytes]) -> list[bool]:
        """Write pages; one that is there already stays as it is."""
        if self._store.put_batch(list(keys), list(contents)) == 0:
            return [True] * len(keys)
        return self.held(keys)

    def close(self) -> None:
        """Take this worker's memory, and what lies in it, out of the store."""
        self._store.close()


def open_mooncake(address: MooncakeAddress) -> MooncakeClient:
    """Join the store. Blocks, a few seconds at most where a server cannot be reached.

    Sets what the library reads from the environment where the operator has not: that it is reached at
    ``address.local``, and that it logs errors alone.

    Raises:
        MooncakeUnavailableError: package, libraries, master or metadata server are missing.
    """
    make_store = _store_type()
    route = _reach(f"//{address.master}", "mooncake_master")
    if address.metadata != NO_METADATA_SERVER:
        _reach(address.metadata, "metadata server")
    local = address.local or route
    os.environ.setdefault("MC_TCP_BIND_ADDRESS", local)
    os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
    os.environ.setdefault("GLOG_minloglevel", "2")
    store = make_store()
    code = store.setup(
        local,
        address.metadata,
        address.segment_mb << 20,
        _BUFFER_BYTES,
        PROTOCOL,
        "",
        address.master,
    )
    if code != 0:
        raise MooncakeUnavailableError(f"mooncake: set-up at {address.master} ends with {code}")
    return MooncakeClient(store)


def _store_type() -> Any:
    try:
        return import_module("mooncake.store").MooncakeDistributedStore
    except ModuleNotFoundError as error:
        raise MooncakeUnavailableError(
            f"mooncake: needs the package {_PACKAGE} (pip install 'kvroute[mooncake]'): {error}"
        ) from error
    except ImportError as error:
        raise MooncakeUnavailableError(
            f"mooncake: a library is missing (Debian: apt-get install {_LIBRARIES}): {error}"
        ) from error


def _reach(url: str, what: str) -> str:
    """The host of ours by which others on that way reach us. The library itself would try for minutes."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), _REACH_S) as there:
            return str(there.getsockname()[0])
    except OSError as error:
        raise MooncakeUnavailableError(f"mooncake: no {what} at {parts.netloc}: {error}") from error
