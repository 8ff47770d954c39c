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
TESTS = Path(__file__).parents[1]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    if "scenario" in metafunc.fixturenames:
        paths = sglang_scenarios(golden)
        metafunc.parametrize("scenario", paths, ids=lambda path: path.stem)


def test_core_reproduces_a_recorded_scenario(scenario: Path) -> None:
    reason = why_not_replayed(scenario)
    if reason is not None:
        pytest.skip(reason)
    head, *operations = json_lines(scenario)
    try:
        config = config_of(head["scenario"], head["meta"])
    except ValueError as error:
        pytest.skip(f"not a configuration of this core: {error}")
    replayer, num_batches = Replayer(config), 0
    for index, recorded in enumerate(operations):
        where = f"operation {index}: {recorded['op']}"
        assert recorded.get("seq", num_batches) == num_batches, where
        num_batches += assert_operation(replayer, recorded, where)


def test_the_docs_name_every_recording_that_is_not_replayed() -> None:
    page = (TESTS.parent / "docs/explanation/tree-core.md").read_text()
    for path in sglang_scenarios(TESTS / "data"):
        assert (why_not_replayed(path) is not None) == (f"`{path.stem}`" in page), path.stem


def why_not_replayed(scenario: Path) -> str | None:
    """None where it was recorded from the core that ours is the equal of."""
    return next((why for mark, why in NOT_REPLAYED.items() if mark in scenario.stem), None)


def assert_operation(replayer: Replayer, recorded: dict[str, Any], where: str) -> bool:
    """Run it here too; whether a batch is published."""
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
    return bool(events)


def published(events: list[KvEvent]) -> list[dict[str, Any]]:
    """Events as they read on the wire."""
    fields: list[dict[str, Any]] = msgpack.unpackb(encode_batch(EventBatch(0.0, events, 0)))[1]
    return fields


def payload_hex(events: list[KvEvent], recorded: dict[str, Any]) -> str | None:
    """The bytes that a publisher sends for these events, at the recorded time; none for none."""
    if not events:
        return None
    return encode_batch(EventBatch(recorded["ts"], events, 0)).hex()
