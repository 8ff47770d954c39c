"""Faults of the configuration name the file where they stand in it, and the field that was meant."""

from pathlib import Path

import pytest

from router.config import ConfigError, load_config

CASES = [
    ("prot: 1", {}, {}, "{file}: prot: unknown field, did you mean port?"),
    ("timeouts: {connects: 1}", {}, {}, "{file}: timeouts.connects: unknown field, did you mean connect_s?"),
    ("timeouts: {xyz: 1}", {}, {}, "{file}: timeouts.xyz: unknown field"),
    ("workers: [{url: http://a, nam: x}]", {}, {}, "{file}: workers.0.nam: unknown field, did you mean name?"),
    ("limits: {max_in_flight: 0}", {}, {}, "{file}: limits.max_in_flight: Input should be"),
    ("port: 80", {"port": 70_000}, {}, "port: Input should be"),
    ("port: 80", {}, {"KVROUTE_PORT": "70000"}, "port: Input should be"),
    ("port: 80", {}, {"KVROUTE_LIMITS__MAX_WORKERS": "0"}, "limits.max_workers: Input should be"),
    ("control_host: 0.0.0.0", {}, {}, "control_token: required"),
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
    assert ("did you mean" in str(raised.value)) == ("did you mean" in words)
