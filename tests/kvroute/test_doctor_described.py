"""What a description alone gives away: events, versions, endpoints, flags."""

from collections.abc import Mapping
from typing import Any

import pytest

from kvroute.doctor.check import Check, Status
from kvroute.doctor.described import Described, described_checks, version_numbers
from protocol import WorkerId
from router.discovery import WorkerAnswers, describe_worker

EVENTS: dict[str, Any] = {
    "publisher": "zmq",
    "endpoint_host": "*",
    "endpoint_port_base": 5557,
    "replay_endpoint_port_base": 5657,
    "block_size": 64,
    "dp_size": 2,
}
SGLANG: dict[str, Any] = {
    "served_model_name": "m",
    "tokenizer_path": "/models/m",
    "page_size": 64,
    "dp_size": 2,
    "version": "0.5.23",
    "kv_events": EVENTS,
}
CARDS = {"data": [{"id": "m", "root": "org/m", "parent": None}]}
SOURCES: dict[str, Any] = {
    "0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657", "publisher": "zmq"}
}


def described(answers: WorkerAnswers, url: str = "http://gpu-1:30000") -> list[Check]:
    found = describe_worker(WorkerId("w"), url, answers)
    return list(described_checks(Described.of(found, answers)))


def sglang(
    changes: Mapping[str, object], events: Mapping[str, object] | None = None
) -> list[Check]:
    info = {**SGLANG, "kv_events": {**EVENTS, **(events or {})}, **changes}
    return described(WorkerAnswers(models=CARDS, server_info=info))


def vllm(sources: object = SOURCES, metrics: str | None = "vllm:x{} 1") -> list[Check]:
    return described(
        WorkerAnswers(
            models=CARDS, version={"version": "0.32.0"}, event_sources=sources, metrics=metrics
        )
    )


def bad(checks: list[Check]) -> dict[str, Check]:
    return {str(one.name): one for one in checks if one.status in (Status.WARNING, Status.FAULT)}


def test_a_good_description_has_no_faults() -> None:
    assert bad(sglang({})) == {}
    assert bad(vllm()) == {}


@pytest.mark.parametrize(
    ("changes", "events", "name", "status", "change"),
    [
        ({"kv_events": None}, {}, "events", Status.FAULT, '"publisher": "zmq"'),
        ({}, {"publisher": "null"}, "events", Status.FAULT, "--kv-events-config"),
        ({"version": "0.5.14"}, {}, "version", Status.FAULT, "0.5.20"),
        ({"version": "0.4.7"}, {}, "version", Status.FAULT, "0.5.20"),
        ({"version": None}, {}, "version", Status.WARNING, ""),
        ({"version": "dev"}, {}, "version", Status.WARNING, ""),
        ({}, {"endpoint_host": "127.0.0.1"}, "endpoint", Status.FAULT, "tcp://*:PORT"),
        ({}, {"endpoint_host": "::1"}, "endpoint", Status.FAULT, "tcp://*:PORT"),
        ({}, {"endpoint_host": "localhost"}, "endpoint", Status.FAULT, "tcp://*:PORT"),
        ({}, {"endpoint_host": "gpu-7"}, "endpoint", Status.WARNING, ""),
        ({}, {"replay_endpoint_port_base": 5558}, "endpoint", Status.FAULT, "further apart"),
        ({"disable_radix_cache": True}, {}, "prefix_cache", Status.FAULT, "--disable-radix-cache"),
        ({"enable_cache_report": False}, {}, "cache_report", Status.WARNING, "--enable-cache-report"),
        ({}, {"endpoint_port_base": 70_000}, "reachable", Status.WARNING, ""),
    ],
)  # fmt: skip
def test_what_sglang_says(
    changes: dict[str, object],
    events: dict[str, object],
    name: str,
    status: Status,
    change: str,
) -> None:
    found = bad(sglang(changes, events))
    assert found[name].status is status
    assert change in found[name].change


@pytest.mark.parametrize(
    ("version", "is_silent"),
    [("0.5.16", False), ("0.5.17", True), ("0.5.19.post1", True), ("0.5.20", False), ("0.6.0", False)],
)  # fmt: skip
def test_releases_that_refill_silently_are_named_where_there_is_storage(
    version: str, is_silent: bool
) -> None:
    assert (
        "host_tier" in bad(sglang({"version": version, "hicache_storage_backend": "file"}))
    ) is is_silent
    assert "host_tier" not in bad(sglang({"version": version}))


def test_a_simulated_vllm_is_told_its_own_flags() -> None:
    version = {"version": "0.23.0", "kvroute_worker": {"engine": "vllm"}}
    answers = WorkerAnswers(models=CARDS, version=version, metrics="vllm:x{} 1")
    found = bad(described(answers))
    assert found.keys() == {"events"}
    assert found["events"].change.startswith("--events-port 5557 --replay-port 5657; then name")
    (said,) = [one.text for one in described(answers) if one.name == "version"]
    assert said == "kvroute worker, as vllm 0.23.0"


def test_what_vllm_says() -> None:
    nowhere = bad(vllm(None))["events"]
    assert "enable_kv_cache_events" in nowhere.change
    assert "endpoint: tcp://*:5557" in nowhere.change
    off = {"0": {"enable_kv_cache_events": False, "endpoint": "tcp://*:5557"}}
    assert bad(vllm(off))["events"].status is Status.FAULT
    assert "--disable-log-stats" in bad(vllm(metrics=None))["cache_report"].change
    here = {"0": {"endpoint": "tcp://127.0.0.1:5557", "publisher": "zmq"}}
    assert bad(vllm(here))["endpoint"].status is Status.FAULT


def test_the_simulated_worker_is_told_its_own_flags() -> None:
    assert "--no-events" in bad(sglang({"kvroute_worker": {}, "kv_events": None}))["events"].change


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("0.5.23", (0, 5, 23)),
        ("v1.2", (1, 2, 0)),
        ("0.5.19.post1+cu130", (0, 5, 19)),
        ("", None),
        (None, None),
        ("main", None),
        ("9" * 5000, None),
    ],
)
def test_versions(version: str | None, numbers: tuple[int, ...] | None) -> None:
    assert version_numbers(version) == numbers
