"""Faults of the configuration name the file where they stand in it, and the field that was meant."""

from pathlib import Path

import pytest

from router.config import ConfigError, load_config
from scoring import PolicyName

POLICIES = ", ".join(f"'{name}'" for name in PolicyName)
CASES = [
    ("prot: 1", {}, {}, "{file}: prot: unknown field, did you mean port?"),
    ("timeouts: {connects: 1}", {}, {}, "{file}: timeouts.connects: unknown field, did you mean connect_s?"),
    ("timeouts: {xyz: 1}", {}, {}, "{file}: timeouts.xyz: unknown field"),
    ("workers: [{url: http://a, nam: x}]", {}, {}, "{file}: workers.0.nam: unknown field, did you mean name?"),
    ("limits: {max_in_flight: 0}", {}, {}, "{file}: limits.max_in_flight: at least 1 (given: 0)"),
    ("port: 80", {"port": 70_000}, {}, "port: at most 65535 (given: 70000)"),
    ("port: 80", {}, {"KVROUTE_PORT": "70000"}, "KVROUTE_PORT: port: at most 65535 (given: '70000')"),
    ("port: 80", {}, {"kvroute_port": "x"}, "kvroute_port: port: a whole number (given: 'x')"),
    ("port: 80", {}, {"KVROUTE_LIMITS__MAX_WORKERS": "0"}, "KVROUTE_LIMITS__MAX_WORKERS: limits.max_workers: at least 1 (given: '0')"),
    ("port: 80", {}, {"KVROUTE_STORAGE": "foo"}, "KVROUTE_STORAGE: a section or a list is written as JSON, or a variable a field (given: 'foo')"),
    ("port: 80", {}, {"KVROUTE_STORAGE__POOLS": "foo"}, "KVROUTE_STORAGE__POOLS: a section or a list is written as JSON"),
    ("port: 80", {}, {"KVROUTE_BOOTSTRAP": "{token: secret"}, "KVROUTE_BOOTSTRAP: a section or a list is written as JSON, or a variable a field"),
    ("port: 80", {}, {"KVROUTE_DRAIN": "5"}, "KVROUTE_DRAIN: drain: an object of fields (given: "),
    ("drain: [1]", {}, {}, "{file}: drain: an object of fields"),
    ("policy: best", {}, {}, "{file}: policy: " + " or ".join(POLICIES.rsplit(", ", 1)) + " (given: 'best')"),
    ("timeouts: {connect_s: .nan}", {}, {}, "{file}: timeouts.connect_s: at most 86400 (given: nan)"),
    ("control_token: 12345", {}, {}, "{file}: control_token: a text"),
    ("worker_token: [1]", {}, {}, "{file}: worker_token: a text"),
    ("workers: [{}]", {}, {}, "{file}: workers.0.url: required"),
    ("workers: 5", {}, {}, "{file}: workers: a list (given: 5)"),
    ("names_worker: perhaps", {}, {}, "{file}: names_worker: true or false (given: 'perhaps')"),
    ("host: 5", {}, {}, "{file}: host: a text (given: 5)"),
    ("port: 5", {"control_port": 5}, {}, "control_port: the data port is 5, too"),
    ("control_host: 0.0.0.0", {}, {}, "control_token: required"),
    ("keys: [kvr-secret]", {}, {}, "{file}: keys.0: an object of fields"),
    ("keys: [{kvr-secret: 1}]", {}, {}, "{file}: keys.0.name: required"),
    ("keys: [{name: kvr secret}]", {}, {}, "{file}: keys.0.name: of the form"),
    ("port: 80", {}, {"KVROUTE_KEYS": "kvr-secret,kvr-secret2"}, "KVROUTE_KEYS: keys.0: an object of fields"),
    ("port: 80", {}, {"KVROUTE_KEYS": "[kvr-secret"}, "KVROUTE_KEYS: keys: "),
    ("port: 80", {}, {"KVROUTE_BOOTSTRAP": "secret"}, "KVROUTE_BOOTSTRAP: a section or a list"),
    ("bootstrap: secret", {}, {}, "{file}: bootstrap: an object of fields"),
    ("worker_token: [secret]", {}, {}, "{file}: worker_token: a text"),
    ('workers: ["http://w/?api_key=secret"]', {}, {}, "{file}: workers.0.url: a worker's URL has no credentials"),
    ("port: 80", {"workers": ["a:1"]}, {}, "workers.0.url: not an http URL"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "flags", "environ", "words"), CASES)
def test_words(
    tmp_path: Path, text: str, flags: dict[str, object], environ: dict[str, str], words: str
) -> None:
    file = tmp_path / "kvroute.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_config(file, flags, environ)
    assert str(raised.value).startswith(words.format(file=file))
    for ours_only in ("Input should", "Value error", "12345", "secret"):
        assert ours_only not in str(raised.value).replace(str(file), "")
    assert "\n" not in str(raised.value)
    assert ("did you mean" in str(raised.value)) == ("did you mean" in words)


BROKEN = {
    "binary": b"\x00\xff\xfe",
    "control": b"\x00\x01",
    "flow": b"a: [",
    "twice": b"port: 1\nport: 2",
    "list": b"- x",
    "toml": b"[limits]\nmax_in_flight = 1\n",
    "tab": b"a:\n\t- b",
    "python": b"a: !!python/object:os.system 1",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_such_file_is_told_on_one_line(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kvroute.yaml"
    file.write_bytes(BROKEN[name])
    with pytest.raises(ConfigError) as raised:
        load_config(file, {}, {})
    assert str(raised.value).startswith(f"{file}: ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "why"), [("missing.yaml", "no such file or directory"), ("", "is a directory")]
)
def test_what_is_no_file_at_all(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / name, {}, {})
    assert str(raised.value) == f"{tmp_path / name}: cannot be read: {why}"


def test_ports_of_different_addresses_may_be_equal() -> None:
    given = {"host": "127.0.0.2", "control_host": "127.0.0.1", "port": 90, "control_port": 90}
    assert load_config(None, given, {}).control_port == 90
    assert load_config(None, {"port": 0, "control_port": 0}, {}).port == 0
