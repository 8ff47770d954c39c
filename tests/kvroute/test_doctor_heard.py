"""What events give away of a worker, told from a story of batches and notes."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvroute.doctor.check import Check, Status
from kvroute.doctor.described import Described
from kvroute.doctor.heard_checks import heard_checks
from kvroute.doctor.hearing import Hearing
from kvroute.tap import Batch, Heard, Note, NoteKind
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineKind,
    EventBatch,
    EventSource,
    KvEvent,
    LiveMessage,
    Rank,
    WorkerId,
    WorkerSpec,
    decode_batch,
)
from router.discovery import Discovered
from tests.conftest import DATA
from tests.recordings import json_lines, sglang_scenarios


def source(dp_rank: int = 0, *, has_replay: bool = True, topic: str = "") -> EventSource:
    replay = f"tcp://w:{200 + dp_rank}" if has_replay else None
    return EventSource(Rank(WorkerId("w"), dp_rank), f"tcp://w:{100 + dp_rank}", replay, topic)


def note(kind: NoteKind, text: str = "") -> Note:
    return Note(kind, text, 0.0)


CONNECTED: Heard = note(NoteKind.CONNECTED)
REPLAYED: Heard = note(NoteKind.REPLAYED)


def batch(
    seq: int,
    *events: KvEvent,
    dp_rank: int = 0,
    topic: bytes = b"",
    lag_s: float = 0.01,
    is_live: bool = False,
) -> Batch:
    made = EventBatch(1000.0, events, dp_rank)
    message = LiveMessage(topic, seq, b"")
    return Batch(dp_rank, message, made, 1000.0 + lag_s, not is_live)


def stored(
    *blocks: int, size: int = 4, medium: str = "GPU", kind: str | None = None
) -> BlockStored:
    tokens = list(range(size * len(blocks)))
    return BlockStored(list(blocks), None, tokens, size, medium, spec_kind=kind)


def heard(story: Sequence[Heard], of: EventSource | None = None) -> Hearing:
    hearing = Hearing(of or source())
    for one in story:
        hearing.add(one)
    return hearing


def worker(
    sources: Sequence[EventSource] = (source(),), info: dict[str, object] | None = None
) -> Described:
    spec = WorkerSpec(
        WorkerId("w"), "http://w", "m", EngineKind.SGLANG, "0.5.23", 4, None, tuple(sources), len(sources)
    )  # fmt: skip
    return Described(Discovered(spec), info or {})


def checks(
    story: Sequence[Heard], info: dict[str, object] | None = None, ahead_s: float | None = None
) -> dict[str, Check]:
    return {str(one.name): one for one in heard_checks(worker(info=info), [heard(story)], ahead_s)}


WHOLE: list[Heard] = [CONNECTED, batch(0, AllBlocksCleared()), batch(1, stored(1, 2)), REPLAYED]


def test_a_good_stream() -> None:
    found = checks([*WHOLE, batch(2, stored(3), is_live=True)])
    assert {one.status for one in found.values()} == {Status.OK}
    assert set(found) == {"ranks", "replay", "payloads", "block_size", "clock"}


def test_ranks_out_of_reach_are_named_with_the_port() -> None:
    lost = heard([], source(1))
    lost.why_unreachable = "connection refused"
    one = worker((source(), source(1)), {"kv_events": {"endpoint_host": "10.0.0.1"}, "nnodes": 2})
    found = {str(c.name): c for c in heard_checks(one, [heard(WHOLE), lost])}
    assert found["ranks"].status is Status.FAULT
    assert "rank 1: tcp://w:101: connection refused" in found["ranks"].text
    assert "tcp://*:101" in found["ranks"].change
    assert "connects instead of listening" in found["ranks"].change
    multi_node = worker((source(), source(1)), {"nnodes": 2})
    assert "--nnodes 2" in next(heard_checks(multi_node, [heard(WHOLE), lost])).change


@pytest.mark.parametrize(
    ("story", "status", "words"),
    [
        ([CONNECTED, note(NoteKind.REPLAY_FAILED, "no answer")], Status.FAULT, "no answer"),
        ([CONNECTED, batch(0)], Status.UNCHECKED, "not answered to its end"),
        ([CONNECTED, note(NoteKind.REPLAY_TRUNCATED), batch(7), REPLAYED], Status.WARNING, "before 7"),
        (WHOLE, Status.OK, "batches buffered: 2"),
    ],
)  # fmt: skip
def test_replay(story: list[Heard], status: Status, words: str) -> None:
    found = checks(story)["replay"]
    assert found.status is status
    assert words in found.text


def test_replay_that_is_off_names_the_flag() -> None:
    off = source(has_replay=False)
    found = {str(c.name): c for c in heard_checks(worker((off,)), [heard([CONNECTED], off)])}
    assert found["replay"].status is Status.FAULT
    assert '"replay_endpoint": "tcp://*:200"' in found["replay"].change


def test_another_topic_than_named_is_a_fault() -> None:
    of = source(topic="kv")
    story = [CONNECTED, batch(0, topic=b"other"), REPLAYED]
    found = {str(c.name): c for c in heard_checks(worker((of,)), [heard(story, of)])}
    assert "'other'" in found["topic"].text
    assert "'kv'" in found["topic"].text
    same = [CONNECTED, batch(0, topic=b"kv-events"), REPLAYED]
    assert "topic" not in {str(c.name) for c in heard_checks(worker((of,)), [heard(same, of)])}


def test_a_port_that_carries_other_ranks() -> None:
    both = (source(), source(1))
    story = [CONNECTED, batch(0), batch(0, dp_rank=1), REPLAYED]
    hearings = [heard(story), heard([CONNECTED, REPLAYED], both[1])]
    found = {str(c.name): c for c in heard_checks(worker(both), hearings)}
    assert found["publishers"].status is Status.FAULT
    assert checks([CONNECTED, batch(0, dp_rank=5)])["publishers"].status is Status.WARNING
    restarted = [*WHOLE, note(NoteKind.RESTART), batch(0, is_live=True)]
    assert checks(restarted)["publishers"].status is Status.WARNING


def test_payloads_that_cannot_be_read() -> None:
    unreadable = checks([*WHOLE, note(NoteKind.UNREADABLE, "batch 3 cannot be read")])["payloads"]
    assert unreadable.status is Status.FAULT
    assert "batch 3 cannot be read" in unreadable.text
    assert checks([*WHOLE, note(NoteKind.SKIPPED_EVENT)])["payloads"].status is Status.WARNING
    assert checks([CONNECTED, REPLAYED])["payloads"].status is Status.UNCHECKED


def test_block_sizes() -> None:
    found = checks([CONNECTED, batch(0, stored(1, size=8)), REPLAYED])["block_size"]
    assert found.status is Status.FAULT
    assert "--page-size 8" in found.change
    assert found.evidence == {"named": 4, "heard": 8}
    mixed = [CONNECTED, batch(0, stored(1), stored(2, size=8)), REPLAYED]
    assert checks(mixed)["block_size"].status is Status.WARNING
    sliding = [CONNECTED, batch(0, stored(1), stored(2, size=8, kind="sliding_window")), REPLAYED]
    assert checks(sliding)["block_size"].status is Status.OK
    assert checks([CONNECTED])["block_size"].status is Status.UNCHECKED


HICACHE: dict[str, object] = {"enable_hierarchical_cache": True}


def test_the_host_tier() -> None:
    assert "host_tier" not in checks(WHOLE)
    assert checks(WHOLE, HICACHE)["host_tier"].status is Status.WARNING
    assert "upgrade to SGLang" in checks(WHOLE, HICACHE)["host_tier"].change
    simulated = checks(WHOLE, HICACHE | {"kvroute_worker": {}})["host_tier"]
    assert simulated.change == "--write-policy write_through copies at once"
    assert checks([CONNECTED, batch(0), REPLAYED], HICACHE)["host_tier"].status is Status.UNCHECKED
    announced = [*WHOLE, batch(2, stored(1, medium="CPU_PINNED"), is_live=True)]
    assert checks(announced, HICACHE)["host_tier"].status is Status.OK
    gone = BlockRemoved([1], "CPU_PINNED")
    assert checks([*announced, batch(3, gone)], HICACHE)["host_tier"].status is Status.OK
    twice = checks([*announced, batch(3, gone), batch(4, gone)], HICACHE)["host_tier"]
    assert twice.status is Status.FAULT
    assert twice.evidence == {"unannounced": 1}


def test_what_is_offloaded_without_tokens_is_known_in_part() -> None:
    nameless = BlockStored([2], None, [], 0, "CPU")
    story = [*WHOLE, batch(2, stored(1, medium="CPU"), nameless, is_live=True)]
    found = checks(story)["host_tier"]
    assert (found.status, found.evidence) == (Status.WARNING, {"without_tokens": 1})
    assert "self_describing_kv_events" in found.change
    simulated = checks(story, {"kvroute_worker": {}})["host_tier"]
    assert simulated.change == "--self-describing-offload"


def test_removals_are_judged_only_where_everything_was_heard() -> None:
    gone = batch(8, BlockRemoved([1], "CPU_PINNED"))
    stories: list[list[Heard]] = [[batch(7), gone], [batch(0), note(NoteKind.GAP), gone]]
    for story in stories:
        assert heard(story).host_unannounced == 0


@pytest.mark.parametrize("path", sglang_scenarios(DATA), ids=lambda path: path.stem)
def test_only_the_release_that_refills_silently_is_accused(path: Path) -> None:
    hearing, seq = Hearing(source()), 0
    for line in json_lines(path):
        if "payload_hex" in line:
            made = decode_batch(bytes.fromhex(line["payload_hex"]))
            hearing.add(Batch(0, LiveMessage(b"", seq, b""), made, 0.0, is_replayed=True))
            seq += 1
    assert (hearing.host_unannounced > 0) is path.stem.startswith("prefix0519")


@pytest.mark.parametrize(
    ("lag_s", "status"),
    [(0.0, Status.OK), (4.9, Status.OK), (-0.9, Status.OK), (5.1, Status.WARNING), (-1.1, Status.WARNING)],
)  # fmt: skip
def test_the_clock_by_live_events(lag_s: float, status: Status) -> None:
    live = batch(2, stored(3), is_live=True, lag_s=lag_s)
    clock = checks([*WHOLE, live])["clock"]
    assert (clock.status, clock.text.partition(" ms")[0]) == (
        status,
        f"events heard {lag_s * 1e3:,.1f}",
    )


def test_the_clock_by_live_events_of_several_lags() -> None:
    live = [
        batch(2 + i, stored(3 + i), is_live=True, lag_s=lag_s) for i, lag_s in enumerate((0.1, 0.2))
    ]
    assert (
        checks([*WHOLE, *live])["clock"].text == "events heard 100.0 to 200.0 ms after their stamps"
    )


@pytest.mark.parametrize(
    ("ahead_s", "status", "words"),
    [
        (None, Status.UNCHECKED, "no live event"),
        (-0.7, Status.OK, "agrees"),
        (90.0, Status.WARNING, "90 s ahead"),
        (-90.0, Status.WARNING, "90 s behind"),
    ],
)
def test_the_clock_by_http(ahead_s: float | None, status: Status, words: str) -> None:
    found = checks(WHOLE, ahead_s=ahead_s)["clock"]
    assert found.status is status
    assert words in found.text
