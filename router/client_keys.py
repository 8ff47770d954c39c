"""Who may use the data port: keys of clients, what each allows, and how much of it.

    header ─▶ SHA-256 ─▶ one look-up ─▶ compared in constant time ─▶ path ─▶ in flight ─▶ rate ─▶ served

Keys are known by their hashes alone. What is looked up is the beginning of a hash, which nobody can choose; the whole
is compared in constant time. A key that was found is counted by its name, one that was not is neither kept nor told.
"""

import hmac
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import sha256

from router.client_paths import is_for_clients
from router.errors import ErrorKind, FrontDoorError
from router.headers import RawHeader
from router.key_config import MAX_KEYS, ClientKeyEntry
from router.tenant_salt import TenantSalt
from router.token_bucket import TokenBucket

CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
MAX_KEY_BYTES = 1024
"""A longer one is unknown, and not hashed."""
_MAX_TRIED = 4  # keys of one request
_FOUND_BY = 16  # bytes of a hash
_SCHEME = b"bearer "


class KeyOutcome(StrEnum):
    """What became of a request with a key that is known."""

    ADMITTED = "admitted"
    RATE_LIMITED = "rate_limited"
    CONCURRENCY_LIMITED = "concurrency_limited"
    FORBIDDEN = "forbidden"


class Stranger(StrEnum):
    """Why a request counts as nobody's."""

    NO_KEY = "no_key"
    UNKNOWN_KEY = "unknown_key"


class ClientKey:
    """One key: its rights, and how far they are used.

    Args:
        worker_token: what workers ask for.

    Attributes:
        models: that may be named; None for all.
        priority: of its requests.
        salt: sets the cache of its requests apart; None where it is shared.
        worker_field: in place of the client's credentials; None where there is none.
        in_flight: requests being served.
        outcomes: of its requests, as counts; one that is admitted may be forbidden still, once its body is read.
    """

    __slots__ = (
        "_bucket",
        "_limits",
        "_max_in_flight",
        "administers",
        "in_flight",
        "is_forwarded",
        "models",
        "name",
        "outcomes",
        "priority",
        "salt",
        "sees_scores",
        "worker_field",
    )

    def __init__(self, entry: ClientKeyEntry, worker_token: str | None, now: float) -> None:
        self.name = entry.name
        token = None if worker_token is None else f"Bearer {worker_token}".encode()
        self.worker_field: RawHeader | None = None if token is None else (b"authorization", token)
        self.in_flight = 0
        self.outcomes: Counter[KeyOutcome] = Counter()
        self._bucket: TokenBucket | None = None
        self._limits: tuple[float | None, int | None] = None, None
        self.renew(entry, now)

    def renew(self, entry: ClientKeyEntry, now: float) -> None:
        """Have these rights from here on. What was used of limits that stay is used still."""
        self.models = None if entry.models is None else frozenset(entry.models)
        self.administers = entry.administers
        self.sees_scores = entry.sees_scores
        self.is_forwarded = entry.is_forwarded
        salt = entry.cache_salt
        self.salt = None if salt is None else TenantSalt(salt.get_secret_value())
        self._max_in_flight = entry.max_in_flight
        self.priority = entry.priority_right()
        limits = entry.requests_per_s, entry.burst
        if limits != self._limits:
            self._limits = limits
            self._bucket = _bucket(*limits, now)

    def enter(self, path: str, now: float) -> None:
        """Count a request in, if it may come now. Each that came in must ``leave``.

        Raises:
            FrontDoorError: the path is not for this key, or its limits are reached. Nothing is booked then.
        """
        if not self.administers and not is_for_clients(path):
            raise self.forbidden("this key may not use this path")
        if self._max_in_flight is not None and self.in_flight >= self._max_in_flight:
            self.outcomes[KeyOutcome.CONCURRENCY_LIMITED] += 1
            message = f"this key has {self._max_in_flight} requests in flight, its limit"
            raise FrontDoorError(ErrorKind.CONCURRENCY_LIMIT, message)
        wait_s = 0.0 if self._bucket is None else self._bucket.take(now)
        if wait_s:
            self.outcomes[KeyOutcome.RATE_LIMITED] += 1
            message = "this key has sent requests faster than its limit"
            raise FrontDoorError(ErrorKind.RATE_LIMIT, message, retry_after_s=math.ceil(wait_s))
        self.outcomes[KeyOutcome.ADMITTED] += 1
        self.in_flight += 1

    def leave(self) -> None:
        """A request that came in is over."""
        self.in_flight -= 1

    def forbidden(self, message: str, param: str | None = None) -> FrontDoorError:
        """Count a refusal for want of a right, and word it."""
        self.outcomes[KeyOutcome.FORBIDDEN] += 1
        return FrontDoorError(ErrorKind.NOT_ALLOWED, message, param)

    def check(self) -> None:
        """Verify the invariants."""
        assert self.in_flight >= 0, self.in_flight
        if self._bucket is not None:
            self._bucket.check()


class ClientKeys:
    """All keys. There are at most ``MAX_KEYS``, so that their names can be labels.

    Args:
        worker_token: what workers ask for, sent with requests in place of what clients sent.

    Attributes:
        strangers: requests that were refused for want of a key, by reason.
    """

    def __init__(
        self, entries: Sequence[ClientKeyEntry], worker_token: str | None = None, now: float = 0.0
    ) -> None:
        self.strangers: Counter[Stranger] = Counter()
        self._worker_token = worker_token
        self._keys: dict[bytes, tuple[bytes, ClientKey]] = {}
        self.renew(entries, now)

    def __iter__(self) -> Iterator[ClientKey]:
        return iter([key for _, key in self._keys.values()])

    def of(self, headers: Iterable[RawHeader]) -> ClientKey:
        """The key that a request bears: as a bearer token, or in ``x-api-key``.

        Of several the first that is known counts. Names are lower case.

        Raises:
            FrontDoorError: it bears none, or none that is known.
        """
        given = [key for field in headers if field[0] in CREDENTIALS and (key := _key_in(*field))]
        for key in given[:_MAX_TRIED]:
            if (found := self._find(key)) is not None:
                return found
        if given:
            self.strangers[Stranger.UNKNOWN_KEY] += 1
            raise FrontDoorError(ErrorKind.UNAUTHORIZED, "the API key is not known")
        self.strangers[Stranger.NO_KEY] += 1
        message = "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"
        raise FrontDoorError(ErrorKind.UNAUTHORIZED, message)

    def renew(self, entries: Sequence[ClientKeyEntry], now: float) -> tuple[int, int]:
        """Know these keys, and no others, from here on. Those that are known by name have new rights at once; what runs with one
        that is gone goes on.

        Returns:
            How many names are new, and how many are gone.
        """
        known = {key.name: key for key in self}
        fresh: dict[bytes, tuple[bytes, ClientKey]] = {}
        num_new = 0
        for entry in entries:
            key = known.pop(entry.name, None)
            if key is None:
                num_new += 1
                key = ClientKey(entry, self._worker_token, now)
            else:
                key.renew(entry, now)
            digest = bytes.fromhex(entry.sha256)
            fresh[digest[:_FOUND_BY]] = digest, key
        self._keys = fresh
        return num_new, len(known)

    def check(self) -> None:
        """Verify the invariants."""
        assert len({key.name for key in self}) == len(self._keys) <= MAX_KEYS
        for digest, key in self._keys.values():
            assert self._keys[digest[:_FOUND_BY]][1] is key, key.name
            key.check()

    def _find(self, given: bytes) -> ClientKey | None:
        if len(given) > MAX_KEY_BYTES:
            return None
        digest = sha256(given).digest()
        found = self._keys.get(digest[:_FOUND_BY])
        return found[1] if found is not None and hmac.compare_digest(found[0], digest) else None


def _bucket(rate: float | None, burst: int | None, now: float) -> TokenBucket | None:
    return None if rate is None else TokenBucket(rate, burst or max(1.0, rate), now)


def _key_in(name: bytes, value: bytes) -> bytes | None:
    """The key that a field bears; None where it bears none."""
    if name == b"authorization":
        if value[: len(_SCHEME)].lower() != _SCHEME:
            return None
        value = value[len(_SCHEME) :]
    key = value.strip()
    return key or None
