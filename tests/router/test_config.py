"""Where configuration comes from, and what is said about what is wrong with it."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from protocol import DEFAULT_ENGINE_MODEL
from router.config import ConfigError, RouterConfig, is_loopback, load_config
from router.discovery import NamedEvents
from scoring import PolicyName, RateName


def load(
    path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> RouterConfig:
    return load_config(path, overrides or {}, environ or {})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kvroute.yaml"
    path.write_text(
        "port: 1000\ncontrol_port: 1001\npolicy: random\n"
        "workers: [http://a:1/, {url: 'http://b:2', name: second}]\n"
        "timeouts: {connect_s: 2, idle_s: 3}\n"
    )
    return path


def test_flags_before_environment_before_file_before_defaults(file: Path) -> None:
    environ = {
        "KVROUTE_CONTROL_PORT": "2001",
        "KVROUTE_PORT": "2000",
        "KVROUTE_TIMEOUTS__IDLE_S": "5",
        "OTHER_PORT": "1",
    }
    overrides = {"port": 3000, "policy": None, "timeouts": {"first_byte_s": 9}}
    config = load(file, overrides, environ)
    assert (config.port, config.control_port) == (3000, 2001)
    assert config.policy is PolicyName.RANDOM
    timeouts = config.timeouts
    assert (timeouts.connect_s, timeouts.idle_s, timeouts.first_byte_s) == (2, 5, 9)
    assert timeouts.probe_s == RouterConfig().timeouts.probe_s


def test_workers_as_strings_and_mappings(file: Path) -> None:
    config = load(file)
    assert [(entry.url, entry.worker) for entry in config.workers] == [
        ("http://a:1", "a:1"),
        ("http://b:2", "second"),
    ]


def test_event_endpoints_named_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "kvroute.yaml"
    path.write_text(
        "workers:\n- url: http://a:1\n  events: {endpoint: 'tcp://*:5557', topic: kv}\n- http://b:1\n"
    )
    first, second = load(path).workers
    assert first.named_events() == NamedEvents("tcp://*:5557", None, "kv")
    assert second.named_events() is None


def test_engines_that_connect_to_the_router(tmp_path: Path) -> None:
    path = tmp_path / "kvroute.yaml"
    path.write_text(
        "events: {listen: 'tcp://*:5557', replay_endpoint: 'tcp://*:5657', topic: 'kv@{host}@{model}'}\n"
        "workers: [{url: http://a:1, events: {listen: 'tcp://127.0.0.1:6000'}}, http://b:1]\n"
    )
    config = load(path)
    first, second = config.workers
    assert first.named_events() == NamedEvents("tcp://127.0.0.1:6000", is_bound=True)
    assert second.named_events() is None
    assert config.events is not None
    assert config.events.named() == NamedEvents(
        "tcp://*:5557", "tcp://*:5657", "kv@{host}@{model}", is_bound=True
    )


@pytest.mark.parametrize(
    "value", ["http://a:1,http://b:1", '["http://a:1", {"url": "http://b:1"}]']
)
def test_workers_from_the_environment(value: str) -> None:
    config = load(environ={"KVROUTE_WORKERS": value})
    assert [entry.url for entry in config.workers] == ["http://a:1", "http://b:1"]


@pytest.mark.parametrize("service", ["KVROUTE", "KVROUTE_CONTROL", "KVROUTE_2"])
def test_what_kubernetes_injects_for_services_is_no_configuration(service: str) -> None:
    injected = {
        f"{service}_SERVICE_HOST": "10.0.0.1",
        f"{service}_SERVICE_PORT": "80",
        f"{service}_SERVICE_PORT_HTTP": "80",
        f"{service}_PORT": "tcp://10.0.0.1:80",
        f"{service}_PORT_80_TCP": "tcp://10.0.0.1:80",
        f"{service}_PORT_80_TCP_PROTO": "tcp",
        f"{service}_PORT_80_TCP_PORT": "80",
        f"{service}_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert load(environ=injected).model_dump() == load().model_dump()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("KVROUTE_NOPE", "KVROUTE_NOPE: this variable names no field"),
        ("kvroute_nope", "kvroute_nope: this variable"),
        ("KVROUTE_PORT__X", "KVROUTE_PORT__X: this variable"),
        ("KVROUTE_WORKERS__0", "KVROUTE_WORKERS__0: this variable"),
        ("KVROUTE_LIMIT__MAX_WORKERS", "KVROUTE_LIMIT__MAX_WORKERS: this variable"),
        ("KVROUTE_LIMITS__MAX_NOPE", "limits.max_nope: unknown field"),
    ],
)
def test_a_variable_that_names_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(environ={name: "3", "OTHER_NOPE": "3"})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"prot": 1}, "prot: unknown field"),
        ({"timeouts": {"connect": 1}}, "timeouts.connect: unknown field"),
        ({"workers": [{"url": "http://a", "nam": "x"}]}, "workers.0.nam: unknown field"),
        ({"workers": ["http://a:1", "ftp://b"]}, "workers.1.url: not an http URL"),
        (
            {"workers": ["a:1"]},
            "workers.0.url: not an http URL, which begins with http:// or https://: 'a:1'",
        ),
        ({"workers": ["http://u:p@a:1"]}, "workers.0.url: "),
        ({"workers": ["http://a:99999"]}, "workers.0.url: "),
        ({"workers": ["http://a:0"]}, "workers.0.url: its port is not between 1 and 65535"),
        ({"workers": ["http://é:1"]}, "workers.0.url: characters that no URL has"),
        ({"workers": ["http://a\ud800:1"]}, "workers.0.url: characters that no URL has"),
        (
            {"workers": [{"url": "http://a", "events": {"endpoint": "tcp://*:1", "topic": "\n"}}]},
            "workers.0.events.topic: not printable",
        ),
        ({"workers": ["http://a:1", "http://a:1/"]}, "workers.1: a second worker named 'a:1'"),
        (
            {"workers": ["http://a:1", {"url": "http://a:1", "name": "b"}]},
            "workers.1.url: a second worker at http://a:1",
        ),
        (
            {"workers": [{"url": "http://a", "events": {}}]},
            "workers.0.events: one of endpoint and listen is required",
        ),
        (
            {"events": {"endpoint": "tcp://*:1", "listen": "tcp://*:1"}},
            "events: one of endpoint and listen is required",
        ),
        ({"events": {"listen": "tcp://*:1"}}, "events.topic: needs {worker} or {host}"),
        (
            {"events": {"endpoint": "tcp://*:1", "topic": "kv@{pod}"}},
            "events.topic: what stands in braces is one of host, model, port, worker",
        ),
        (
            {
                "workers": [
                    {"url": f"http://{host}", "events": {"listen": "tcp://*:1", "topic": topic}}
                    for host, topic in (("a", "kv@{host}"), ("b", "kv"), ("c", "kv@"))
                ]
            },
            "workers.1.events: a second worker that is listened for at tcp://*:1 under 'kv'",
        ),
        (
            {"workers": [{"url": "http://a", "events": {"endpoint": "tcp://a:0"}}]},
            "workers.0.events.endpoint: not tcp://host:port",
        ),
        ({"port": 70_000}, "port: "),
        ({"port": "x"}, "port: "),
        ({"policy": "best"}, "policy: "),
        ({"limits": {"max_attempts": 0}}, "limits.max_attempts: "),
        ({"limits": {"max_body_bytes": 5, "max_held_bytes": 4}}, "limits: max_held_bytes is at"),
        ({"timeouts": {"idle_s": -1}}, "timeouts.idle_s: "),
        ({"breaker": {"cool_down_s": 9, "max_cool_down_s": 1}}, "breaker: max_cool_down_s"),
        ({"engine": {"host_hit_weight": 0.8, "load_back_tokens_per_s": 1}}, "engine: "),
        ({"engine": {"storage_hit_weight": 1}}, "engine.storage_hit_weight: "),
        ({"control_host": "0.0.0.0"}, "control_token: required"),
        ({"host": ""}, "host: "),
        ({"metrics_host": ""}, "metrics_host: "),
        ({"control_host": "::", "control_token": ""}, "control_token: "),
        ({"log_level": "loud"}, "log_level: "),
        ({"tokenizers": {"m": "/nowhere"}}, "tokenizers.m: there is no tokenizer.json"),
    ],
)
def test_an_error_names_the_field(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(None, overrides)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "holds no mapping"),
        ("a: [", "not YAML"),
        ("port: !!bool x", "bad.yaml: a value that is none of its type"),
        ("other: 1", "other: unknown field"),
        ("port: 1\nhost: h\nport: 2\n", r"bad\.yaml: line 3: port is given twice"),
        ("limits:\n  max_workers: 1\n  'max_workers': 2\n", "line 3: max_workers is given twice"),
        ("workers:\n- url: http://a\n  url: http://b\n", "line 3: url is given twice"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_bad_environment_names_the_field() -> None:
    with pytest.raises(ConfigError, match="TOKENIZERS"):
        load(environ={"KVROUTE_TOKENIZERS": "{"})


def test_the_data_port_is_for_all_and_the_control_port_for_this_machine() -> None:
    config = load()
    assert (config.host, config.control_host) == ("0.0.0.0", "127.0.0.1")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert load(path).port == 8080


def test_a_token_opens_the_control_port_and_stays_out_of_sight() -> None:
    config = load(None, {"control_host": "0.0.0.0", "control_token": "s3cret"})
    assert "s3cret" not in repr(config)


def test_engine_rates() -> None:
    assert load().engine.model() == DEFAULT_ENGINE_MODEL
    engine = {"prefill_tokens_per_s": 1000.0, "host_hit_weight": 0.5}
    model = load(None, {"engine": engine}).engine.model()
    assert (model.prefill_tokens_per_s, model.load_back_tokens_per_s) == (1000.0, 2000.0)
    assert model.decode_ms == DEFAULT_ENGINE_MODEL.decode_ms


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({}, set()),
        (
            {"prefill_tokens_per_s": DEFAULT_ENGINE_MODEL.prefill_tokens_per_s},
            {RateName.PREFILL},
        ),
        ({"host_hit_weight": 0.0, "fetch_tokens_per_s": 1}, {RateName.LOAD_BACK, RateName.FETCH}),
        ({"storage_hit_weight": 0.4, "attention_doubling_tokens": 9}, {RateName.FETCH}),
        ({"decode_ms_per_request": 1}, {RateName.DECODE}),
    ],
)
def test_a_rate_that_is_set_is_configured_even_to_its_default(
    engine: dict[str, object], expected: set[RateName]
) -> None:
    assert load(None, {"engine": engine}).engine.configured() == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("localhost", True), ("127.9.9.9", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
