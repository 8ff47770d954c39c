"""One key of a client as the configuration names it, and what whoever has it may do."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from router.config_section import Section
from router.priority import MAX_PRIORITY, PriorityRight

MAX_KEYS = 1024
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


def _salt(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < 16:
        raise ValueError("shorter than 16 characters: it could be guessed")
    return value


class ClientKeyEntry(Section):
    """A key that lets clients use the data port. With at least one of them, requests without a key are refused.

    Keys are drawn at random and long (`openssl rand -hex 32`), so that their plain SHA-256 gives nothing away: there is
    no list of likely keys to try, and a slow hash would only slow down every request.

    Attributes:
        name: as metrics and decisions show it.
        sha256: of the key, in hexadecimal digits.
        models: that may be named; every one by default. With it, a body whose model cannot be read is refused.
        requests_per_s: that are let through on average; without a bound by default.
        burst: that are let through at once after a pause; as many as in a second by default, and at least one.
        max_in_flight: requests being served; without a bound by default.
        priority: of requests that name none; the higher waits less where workers are full (`queue`).
        max_priority: that its requests may name; by default `priority`.
        administers: may use every path, those that administer engines too.
        sees_scores: is told in `x-kvroute-score` what of its prompt the chosen rank held. Whoever shares a cache with
            others learns from it what they have asked.
        cache_salt: keeps the cache of those that have this key, and of those whose key has the same salt, apart from all
            other requests' cache. At least 16 characters, drawn at random.
        is_forwarded: goes on to workers; for engines that ask for the same keys.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$")]
    models: tuple[str, ...] | None = None
    requests_per_s: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_in_flight: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    priority: Priority = 0
    max_priority: Priority | None = None
    administers: bool = False
    sees_scores: bool = False
    cache_salt: Annotated[SecretStr, AfterValidator(_salt)] | None = None
    is_forwarded: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> "ClientKeyEntry":
        if self.burst is not None and self.requests_per_s is None:
            raise ValueError("burst: is of no use without requests_per_s")
        if self.max_priority is not None and self.max_priority < self.priority:
            raise ValueError("max_priority: is below priority")
        return self

    def priority_right(self) -> PriorityRight:
        """What priorities its requests have."""
        highest = self.priority if self.max_priority is None else self.max_priority
        return PriorityRight(self.priority, highest)
