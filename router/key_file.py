"""Clients' keys from a file of their own, which is read again while the router runs.

A list of keys, in YAML or JSON. Those that the configuration names stay beside it. A key that is gone from it lets nobody in
from then on; what runs with it goes on. One that stays by its name keeps what it has used of its limits.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from prompt.file_stamp import stamp_of
from protocol.fault_words import first_fault
from router.client_keys import ClientKeys
from router.config_sources import ConfigError, load_yaml
from router.file_watch import Reload
from router.key_config import MAX_KEYS, ClientKeyEntry

logger = logging.getLogger(__name__)

_KEYS = TypeAdapter(tuple[ClientKeyEntry, ...])


class KeyFile:
    """That of one router.

    Args:
        others: keys that the configuration names itself.

    Attributes:
        stamp: of the file, before it was last read.
        reloads: attempts, by how they ended.
    """

    def __init__(
        self,
        path: Path,
        others: Sequence[ClientKeyEntry],
        keys: ClientKeys,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._others = tuple(others)
        self._keys = keys
        self._clock = clock
        self.stamp = stamp_of(self.files)
        self.reloads: Counter[Reload] = Counter()
        self.read()()

    @property
    def files(self) -> tuple[Path, ...]:
        """The one that is read."""
        return (self._path,)

    def read(self) -> Callable[[], None]:
        """Read the file, on any thread; what it returns takes the keys, on the loop.

        Raises:
            ValueError: it does not hold keys.
        """
        return partial(self._take, all_keys(self._others, self._path))

    def _take(self, entries: Sequence[ClientKeyEntry]) -> None:
        num_new, num_gone = self._keys.renew(entries, self._clock())
        logger.info(
            "keys of clients: %d, of which %d new; %d gone", len(entries), num_new, num_gone
        )


def all_keys(others: Sequence[ClientKeyEntry], path: Path | None) -> tuple[ClientKeyEntry, ...]:
    """Those of the file behind the others.

    Raises:
        ValueError: it cannot be read, holds something else, or a name or a key is there twice. No key is repeated.
    """
    if path is None:
        return tuple(others)
    try:
        found = _KEYS.validate_python(load_yaml(path))
    except ConfigError as error:
        raise ValueError(f"keys_file: {error}") from error
    except ValidationError as error:
        told = f"keys_file: {path}: {first_fault(error, 'the whole')}"
        raise ValueError(told) from None  # the library's words repeat what was given
    entries = (*others, *found)
    if len(entries) > MAX_KEYS:
        raise ValueError(
            f"keys_file: {path}: more than {MAX_KEYS} keys, with those of the configuration"
        )
    names, hashes = (
        Counter(one.name for one in entries),
        Counter(one.sha256.lower() for one in entries),
    )
    for one in found:
        if names[one.name] > 1:
            raise ValueError(f"keys_file: {path}: a second key named {one.name!r}")
        if hashes[one.sha256.lower()] > 1:
            raise ValueError(f"keys_file: {path}: {one.name!r} is a key that is there already")
    return entries
