"""The tree core does what SGLang's did: every recorded operation, byte for byte."""

from pathlib import Path
from typing import Any

import msgpack
import pytest

from protocol import EventBatch, KvEvent, encode_batch
from tests.conformance.tree_replay import Replayer, config_of
from tests.recordings import json_lines, sglang_scenarios

NOT_REPLAYED = {
    "__rust": "recorded from another core, which merges removals less; it is folded only",
    "prefix0519": "recorded from a release whose refills are silent, without pools and residency",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    metafunc.parametrize("scenario", sglang_scenarios(golden), ids=lambda path: path.stem)


def test_core_reproduces_a_recorded_scenario(scenario: Path) -> None:
    for mark, reason in NOT_REPLAYED.items():
        if mark in scenario.stem:
            pytest.skip(reason)
    head, *operations = json_lines(scenario)
    try:
        config = config_of(head["scenario"], head["meta"])
    except ValueError as error:
        pytest.skip(f"not a configuration of this core: {error}")
    replayer = Replayer(config)
    for index, recorded in enumerate(operations):
        assert_operation(replayer, recorded, f"operation {index}: {recorded['op']}")


def assert_operation(replayer: Replayer, recorded: dict[str, Any], where: str) -> None:
    result = replayer.run(recorded["op"], recorded["args"])
    events = replayer.core.take_events()
    replayer.core.check()
    assert published(events) == recorded["events"], where
    assert payload_hex(events, recorded) == recorded.get("payload_hex"), where
    assert result == recorded["result"], where
    if "pools" in recorded:
        assert replayer.pools() == recorded["pools"], where
    if "residency" in recorded:
        held = {medium: set(hashes) for medium, hashes in recorded["residency"].items()}
        assert replayer.residency() == held, where


def published(events: list[KvEvent]) -> list[dict[str, Any]]:
    """Events as they read on the wire."""
    fields: list[dict[str, Any]] = msgpack.unpackb(encode_batch(EventBatch(0.0, events, 0)))[1]
    return fields


def payload_hex(events: list[KvEvent], recorded: dict[str, Any]) -> str | None:
    """The bytes that a publisher sends for these events, at the recorded time; none for none."""
    if not events:
        return None
    return encode_batch(EventBatch(recorded["ts"], events, 0)).hex()
