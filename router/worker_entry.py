"""One worker as the configuration names it: its URL, and what it does not tell itself."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from protocol import PoolName
from router.config_section import Section
from router.discovery import NamedEvents, is_endpoint
from router.event_topics import topic_fault
from router.plain_text import MAX_TEXT, is_host, is_plain

MAX_URL = 2048
MAX_IN_FLIGHT = 1_000_000
_URL_CHARACTERS = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*")


def _worker_url(value: str) -> str:
    """A base URL: scheme, host, port, perhaps a path; no trailing slash.

    Nothing but the characters that a URL may have: it goes on into requests, logs and JSON.
    """
    url = value.strip(" ").rstrip("/")
    if len(url) > MAX_URL:
        raise ValueError(f"longer than {MAX_URL} characters")
    if not _URL_CHARACTERS.fullmatch(url):
        raise ValueError("characters that no URL has; a host beyond ASCII is written as xn--…")
    parts = urlsplit(url)  # raises ValueError where brackets do not pair
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"not an http URL, which begins with http:// or https://: {value!r}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("a worker's URL has no credentials, query or fragment")
    if not is_host(parts.hostname):
        raise ValueError("its host is neither a name nor an address")
    if parts.netloc.endswith(":") or parts.port == 0:  # raises ValueError beyond 65535
        raise ValueError("its port is not between 1 and 65535")
    return url


WorkerUrl = Annotated[str, AfterValidator(_worker_url)]


def _event_endpoint(value: str) -> str:
    if not is_endpoint(value):
        raise ValueError(f"not tcp://host:port: {value!r}")
    return value


EventEndpoint = Annotated[str, AfterValidator(_event_endpoint)]


def _topic(value: str) -> str:
    if not is_plain(value):
        raise ValueError(f"not printable, or longer than {MAX_TEXT} characters")
    if (fault := topic_fault(value)) is not None:
        raise ValueError(fault)
    return value


StoragePoolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class EventEndpoints(Section):
    """Where a worker publishes its events, for an engine whose routes do not tell (vLLM without
    `/kv_event_sources`), or that connects to the router instead of being connected to. One of `endpoint` and
    `listen` is given.

    Attributes:
        endpoint: `tcp://host:port` of rank 0, rank n having port + n; `*` is the worker's own host.
        listen: `tcp://host:port` that the router binds for rank 0, rank n having port + n; `*` is every address of
            the router's machine. Workers that share it differ in topic.
        replay_endpoint: `tcp://host:port` of rank 0, where the engine has one; `*` is the worker's own host.
        topic: as the engine is told; `{worker}`, `{host}`, `{port}` and `{model}` stand for the worker's own.
    """

    endpoint: EventEndpoint | None = None
    listen: EventEndpoint | None = None
    replay_endpoint: EventEndpoint | None = None
    topic: Annotated[str, AfterValidator(_topic)] = ""

    @model_validator(mode="after")
    def _one_of_two(self) -> "EventEndpoints":
        if (self.endpoint is None) is (self.listen is None):
            raise ValueError("one of endpoint and listen is required")
        return self

    def named(self) -> NamedEvents:
        """As discovery takes them."""
        endpoint = self.endpoint or self.listen
        assert endpoint is not None
        is_bound = self.listen is not None
        return NamedEvents(endpoint, self.replay_endpoint, self.topic, is_bound)


class WorkerEntry(Section):
    """One worker. A plain string stands for its URL.

    Attributes:
        url: base URL of the engine.
        name: as decisions and headers show it; host and port of the URL where it is not given.
        events: in place of the event endpoints that the engine tells.
        storage_pool: the storage that it shares with all other workers of the same pool: what each of them stores
            there every one can fetch. For storage whose address the engine does not tell.
        max_in_flight: requests on each of its ranks at once, in place of `queue.max_in_flight`.
    """

    url: WorkerUrl
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:\[\]-]{1,128}$")] | None = None
    events: EventEndpoints | None = None
    storage_pool: StoragePoolName | None = None
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_string(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @property
    def worker(self) -> str:
        """The worker's id."""
        return self.name or urlsplit(self.url).netloc

    def named_pool(self) -> PoolName | None:
        """As discovery takes it."""
        return None if self.storage_pool is None else PoolName(self.storage_pool)

    def named_events(self) -> NamedEvents | None:
        """As discovery takes them."""
        return None if self.events is None else self.events.named()

    def connected_to(self) -> tuple[str | None, ...]:
        """Its URL, and the event endpoints that the router connects to; None where there is none."""
        events = self.events
        return (
            (self.url,) if events is None else (self.url, events.endpoint, events.replay_endpoint)
        )
