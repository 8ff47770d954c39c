"""The router's configuration: one validated model, filled from flags, environment, file and defaults.

Precedence, field by field: flags, then environment (``KVROUTE_PORT``, nested as
``KVROUTE_TIMEOUTS__CONNECT_S``), then the YAML file, then defaults. An unknown field or a bad value is an
error that names the field's path.
"""

import os
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from prompt import TokenizerChoice
from router.access_log_config import AccessLogConfig
from router.bearer_token import BearerToken
from router.config_faults import FaultWords
from router.config_section import Section
from router.config_sources import (
    ConfigError,
    EnvironmentVariables,
    FileContents,
    listed,
    read_yaml,
    set_by,
    without_nones,
)
from router.cors import Cors
from router.engine_rates import EngineRates
from router.event_topics import tells_workers_apart
from router.key_config import MAX_KEYS, ClientKeyEntry
from router.key_file import all_keys
from router.limits_config import Limits, Seconds, Timeouts
from router.listener_tls import ListenerTls
from router.prompt_config import PromptConfig
from router.queue_config import QueueConfig
from router.reach import ReachConfig
from router.retry_config import RetryConfig
from router.storage_config import StorageConfig
from router.tracing_config import TracingConfig
from router.worker_entry import EventEndpoints, WorkerEntry, WorkerUrl
from router.worker_tls import WorkerTls
from scoring import PolicyName

__all__ = ["ConfigError", "RouterConfig", "WorkerEntry", "is_loopback", "load_config"]

Port = Annotated[int, Field(ge=0, le=65_535)]
Host = Annotated[str, Field(min_length=1)]
"""Empty it would mean every address, which nobody says by leaving something out."""


class Health(Section):
    """Probes of every worker's ``/health``. Requests that wait for a first byte of a worker which turns
    unhealthy are sent to another one.

    Attributes:
        interval_s: between two probes; sooner after one that failed, or a request's connection did: a quarter of the
            time since, at least 0.25 s.
        timeout_s: of one probe.
        failure_threshold: failures in a row that take a worker out of rotation; one success brings it back.
            A worker that stops answering is out after ``interval_s`` and as many ``timeout_s`` as this, give
            or take a second: 9 s by default.
        refresh_s: after which a worker is asked again what it is.
    """

    interval_s: Seconds = 2.0
    timeout_s: Seconds = 2.0
    failure_threshold: Annotated[int, Field(ge=1, le=100)] = 3
    refresh_s: Seconds = 30.0


class BreakerConfig(Section):
    """The circuit breaker of each worker. Where every worker that could take a request is kept from it by its
    breaker, one request may try the one that is tried again soonest, and a worker that could not be reached is tried
    again with its next good probe; each at most once in a 20th of the cool-down.

    Attributes:
        num_faults: 5xx answers (503 apart) and broken connections in a row that open it.
        cool_down_s: until it is tried again; doubles with each further fault.
        max_cool_down_s: upper bound of that.
    """

    num_faults: Annotated[int, Field(ge=1, le=1000)] = 5
    cool_down_s: Seconds = 5.0
    max_cool_down_s: Seconds = 60.0

    @model_validator(mode="after")
    def _in_order(self) -> "BreakerConfig":
        if self.max_cool_down_s < self.cool_down_s:
            raise ValueError("max_cool_down_s is at least cool_down_s")
        return self


class Ready(Section):
    """What ``/ready`` waits for.

    Attributes:
        min_workers: that serve.
        recovery_s: at most so long for the replayed events of a worker.
    """

    min_workers: Annotated[int, Field(ge=0)] = 1
    recovery_s: Annotated[float, Field(ge=0, le=86_400)] = 30.0


def _listened_as(entry: WorkerEntry) -> str | None:
    """Endpoint and topic that the worker is heard by, as far as the configuration knows them."""
    events = entry.events
    if events is None or events.listen is None or tells_workers_apart(events.topic):
        return None
    return f"{events.listen} under {events.topic.rstrip('@')!r}"


class BootstrapConfig(Section):
    """Routers of the same fleet, whose index this one takes over when it starts.

    Attributes:
        siblings: URLs of their control ports, asked in this order; of those at `https` whom `worker_tls` trusts.
        token: of their control ports.
        timeout_s: for one worker, shared evenly by the siblings; then it recovers by itself. Three times as long
            where it has to wait, because siblings tell of four workers at a time.
    """

    siblings: Annotated[tuple[WorkerUrl, ...], NoDecode, BeforeValidator(listed)] = ()
    token: BearerToken | None = None
    timeout_s: Seconds = 10.0


class Drain(Section):
    """What SIGTERM does; a second signal cuts both waits short.

    Attributes:
        window_s: serve on for so long while unready.
        finish_s: then wait so long for running answers.
    """

    window_s: Annotated[float, Field(ge=0, le=86_400)] = 5.0
    finish_s: Annotated[float, Field(ge=0, le=86_400)] = 90.0


def _refuse_twins(message: str, values: Sequence[str]) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(message.format(index, value))


class RouterConfig(BaseSettings):
    """Everything that ``kvroute serve`` can be told.

    Attributes:
        host: address of the data port; every IPv4 address of the machine by default, `::` for those of IPv6 too.
        port: of the data port; 0 lets the system choose.
        control_host: address of the control port; beyond loopback it needs ``control_token``.
        control_port: likewise.
        control_token: bearer token that the control port asks for.
        tls: of the data port, at `https` then.
        control_tls: likewise, of the control port.
        cors: which pages of other origins may use the data port.
        metrics_host: address of the metrics port.
        metrics_port: of a port that serves `/metrics` and nothing else, without a token; by default there is none, and
            the control port alone shows metrics.
        keys: of clients, for the data port; without any, and without `keys_file`, it asks for none.
        keys_file: further keys, a list of such in a file of YAML or JSON, which is read again at SIGHUP and within seconds of a
            change. One that does not fit is told in the log, and the keys before it stay.
        workers: to begin with; the control port adds and removes further ones.
        policy: how a rank is chosen.
        tokenizers: model name → directory with its tokenizer and chat template.
        tokenizer_backend: ``fast`` (fastokens), ``hf`` (tokenizers), or ``auto``: the fast one where it
            is installed and proves equal.
        prompts: how prompts become tokens.
        events: event endpoints of every worker that has none of its own here, in place of those that the engine
            tells.
        worker_token: sent as bearer token in the router's own calls to workers.
        reach: where workers and event endpoints may be that this configuration does not name.
        worker_tls: whom the router trusts at `https`, siblings too, and who it says that it is.
        engine: rates that the cost is made of.
        storage: what is believed of storage that workers share.
        queue: how many requests each rank is given at once, and how further ones wait.
        names_worker: tell clients in headers which rank served them.
        access_log: a line for each request.
        tracing: spans of requests for OpenTelemetry.
        log_level: the least serious that is logged.
    """

    model_config = SettingsConfigDict(
        env_prefix="KVROUTE_", env_nested_delimiter="__", extra="forbid", frozen=True
    )

    host: Host = "0.0.0.0"
    port: Port = 8080
    control_host: Host = "127.0.0.1"
    control_port: Port = 8081
    control_token: BearerToken | None = None
    tls: ListenerTls | None = None
    control_tls: ListenerTls | None = None
    cors: Cors = Cors()
    metrics_host: Host = "127.0.0.1"
    metrics_port: Port | None = None
    keys: Annotated[
        tuple[ClientKeyEntry, ...],
        NoDecode,
        BeforeValidator(listed),
        Field(max_length=MAX_KEYS),
    ] = ()
    keys_file: Path | None = None
    workers: Annotated[tuple[WorkerEntry, ...], NoDecode, BeforeValidator(listed)] = ()
    events: EventEndpoints | None = None
    worker_token: BearerToken | None = None
    reach: ReachConfig = ReachConfig()
    worker_tls: WorkerTls = WorkerTls()
    policy: PolicyName = PolicyName.COST
    tokenizers: dict[str, Path] = Field(default_factory=dict)
    tokenizer_backend: TokenizerChoice = TokenizerChoice.AUTO
    prompts: PromptConfig = PromptConfig()
    engine: EngineRates = EngineRates()
    storage: StorageConfig = StorageConfig()
    names_worker: bool = True
    queue: QueueConfig = QueueConfig()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    health: Health = Health()
    breaker: BreakerConfig = BreakerConfig()
    retries: RetryConfig = RetryConfig()
    ready: Ready = Ready()
    bootstrap: BootstrapConfig = BootstrapConfig()
    drain: Drain = Drain()
    access_log: AccessLogConfig = AccessLogConfig()
    tracing: TracingConfig = TracingConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _consistent(self) -> "RouterConfig":
        if self.control_token is None and not is_loopback(self.control_host):
            raise ValueError("control_token: required where control_host is not a loopback address")
        _refuse_shared(self.addresses())
        for model, directory in self.tokenizers.items():
            if not (directory / "tokenizer.json").is_file():
                raise ValueError(f"tokenizers.{model}: there is no tokenizer.json in {directory}")
        _refuse_twins("keys.{}.name: a second key named {!r}", [one.name for one in self.keys])
        _refuse_twins(
            "keys.{}.sha256: a second key with {}", [one.sha256.lower() for one in self.keys]
        )
        all_keys(self.keys, self.keys_file)
        _refuse_twins(
            "workers.{}: a second worker named {!r}", [one.worker for one in self.workers]
        )
        _refuse_twins("workers.{}.url: a second worker at {}", [one.url for one in self.workers])
        _refuse_twins(
            "workers.{}.events: a second worker that is listened for at {}",
            [one for one in map(_listened_as, self.workers) if one is not None],
        )
        shared = None if self.events is None or self.events.listen is None else self.events.topic
        if shared is not None and not tells_workers_apart(shared):
            raise ValueError(
                "events.topic: needs {worker} or {host}, for workers share the endpoint"
            )
        if len(self.workers) > self.limits.max_workers:
            raise ValueError(f"workers: more than limits.max_workers, {self.limits.max_workers}")
        return self

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of what is listened on, by name, the data port first."""
        found = {
            "data": (self.host, self.port),
            "control": (self.control_host, self.control_port),
        }
        if self.metrics_port is not None:
            found["metrics"] = (self.metrics_host, self.metrics_port)
        return found


_EVERY_HOST = frozenset({"0.0.0.0", "::"})


def _refuse_shared(addresses: Mapping[str, tuple[str, int]]) -> None:
    for (other, (other_host, other_port)), (name, (host, port)) in combinations(
        addresses.items(), 2
    ):
        hosts = {host.strip("[]"), other_host.strip("[]")}
        is_one_host = len(hosts) == 1 or not _EVERY_HOST.isdisjoint(hosts)
        if is_one_host and port == other_port != 0:
            raise ValueError(f"{name}_port: the {other} port is {port}, too")


def load_config(
    path: Path | None,
    overrides: Mapping[str, object],
    environ: Mapping[str, str] = os.environ,
) -> RouterConfig:
    """Merge overrides (flags), environment, file and defaults.

    Args:
        path: the YAML file; None for none.
        overrides: by field name, nested as the model is; None values are taken as not given.
        environ: the environment's variables.

    Raises:
        ConfigError: a field is unknown or bad, or the file cannot be read. The message names it.
    """
    contents = {} if path is None else read_yaml(path)

    class Sources(RouterConfig):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (
                init_settings,
                EnvironmentVariables(settings_cls, environ),
                FileContents(settings_cls, contents),
            )

    given: dict[str, Any] = without_nones(overrides)
    try:
        merged: RouterConfig = Sources(**given)
    except ValidationError as error:
        words = FaultWords(RouterConfig, path, contents, frozenset(given), set_by(environ))
        told = "; ".join(map(words.of, error.errors()))
        raise ConfigError(told) from None  # the library's words repeat secrets
    return merged


def is_loopback(host: str) -> bool:
    """Does the address reach this machine only?"""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
