"""Recorded replay conversations of real engines bring a listener to where a live one stands."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from indexer import Trust
from protocol import EngineKind, decode_batch, parse_live, parse_replay
from protocol.frames import END_OF_REPLAY, ReplayReply
from tests.conformance.listening import Listener
from tests.recordings import frames_of, json_lines, vllm_recordings


@dataclass(frozen=True)
class Conversation:
    """One replay of a publisher.

    Attributes:
        first_seq: as asked for.
        replies: frames, the end marker included.
        live: frames of what the live socket brought before.
    """

    engine: EngineKind
    first_seq: int
    replies: list[list[bytes]]
    live: list[list[bytes]]

    @property
    def numbers(self) -> list[int]:
        """Numbers of the replies."""
        replies = [parse_replay(frames) for frames in self.replies]
        return [reply.seq for reply in replies if isinstance(reply, ReplayReply)]

    @property
    def dp_rank(self) -> int:
        """The rank that the batches name."""
        payloads = [
            reply.payload
            for reply in map(parse_replay, self.replies[:1])
            if isinstance(reply, ReplayReply)
        ]
        return next((decode_batch(payload).dp_rank or 0 for payload in payloads), 0)


def of_vllm(recording: Path) -> Iterator[tuple[str, Conversation]]:
    live: list[list[bytes]] = []
    asked: int | None = None
    replies: list[list[bytes]] = []
    for number, line in enumerate(json_lines(recording)):
        match line.get("kind"):
            case "pub":
                live.append(frames_of(line))
            case "replay_request_dealer":
                asked, replies = int.from_bytes(frames_of(line)[-1]), []
            case "replay_reply_dealer" if asked is not None:
                replies.append(frames_of(line))
                if replies[-1][-2] == END_OF_REPLAY:
                    name = f"{recording.stem}-{number}"
                    yield name, Conversation(EngineKind.VLLM, asked, replies, list(live))
                    asked = None


def of_sglang(capture_file: Path) -> Iterator[tuple[str, Conversation]]:
    for name, capture in json.loads(capture_file.read_text()).items():
        for number, talk in enumerate(
            capture.get("replay_dealer", ()) if isinstance(capture, dict) else ()
        ):
            first_seq = int.from_bytes(bytes.fromhex(talk["request"][-1]))
            live, replies = (
                [[bytes.fromhex(frame) for frame in frames] for frames in messages]
                for messages in (capture["live"], talk["response"])
            )
            yield f"{name}-{number}", Conversation(EngineKind.SGLANG, first_seq, replies, live)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    golden: Path = metafunc.config.getoption("--golden")
    found: dict[str, Conversation] = {}
    for recording in vllm_recordings(golden):
        found |= of_vllm(recording)
    for capture in sorted((golden / "sglang").glob("zmq_frames_*.json")):
        found |= of_sglang(capture)
    if metafunc.function is test_a_listener_that_lacks_just_this:
        found = {name: talk for name, talk in found.items() if len(talk.numbers) > 1}
    metafunc.parametrize("talk", list(found.values()), ids=list(found))


def listener(talk: Conversation) -> Listener:
    numbers = talk.numbers
    rank = talk.dp_rank if numbers else 0
    return Listener(talk.engine, dp_rank=rank, has_replay=True)


def test_a_listener_that_lacks_just_this(talk: Conversation) -> None:
    """It heard all before, misses what is replayed but for the last of it, and then holds all of it."""
    by_number = {parse_live(frames).seq: frames for frames in talk.live}
    if not set(range(talk.numbers[-1] + 1)) <= by_number.keys() | set(talk.numbers):
        pytest.skip("what came before is not in the recording")
    late = listener(talk)
    if talk.first_seq:
        late.replay([b"", b"", END_OF_REPLAY, b""])
    for seq in range(talk.numbers[0] if talk.first_seq else 0):
        late.live(by_number[seq])
    if talk.numbers[-1] in by_number:
        late.live(by_number[talk.numbers[-1]])
    assert late.asked[-1] == talk.first_seq
    for frames in talk.replies:
        late.replay(frames)
    is_whole = talk.numbers[0] == talk.first_seq or late.status.counters.clears > 0
    assert late.status.trust is (Trust.EXACT if is_whole else Trust.JOINED)
    assert late.status.last_seq == talk.numbers[-1]
    assert late.held() == late.tap.fold.claims() or not is_whole
    assert_like_live(talk, late)


def assert_like_live(talk: Conversation, late: Listener) -> None:
    """Another listener heard every message up to the same number."""
    live = Listener(talk.engine, dp_rank=late.rank.dp_rank)
    for frames in talk.live:
        if parse_live(frames).seq <= talk.numbers[-1]:
            live.live(frames)
    if live.status.trust is Trust.EXACT and late.status.trust is Trust.EXACT:
        assert late.held() == live.held()


def test_a_listener_that_comes_late(talk: Conversation) -> None:
    """It holds all where the buffer reaches back to 0; else its claims are true, and more may be there."""
    late = listener(talk)
    assert late.asked == [0]
    for frames in talk.replies:
        late.replay(frames)
    begins = talk.numbers[0] if talk.numbers else 0
    is_whole = begins == 0 or late.status.counters.clears > 0
    assert late.status.trust is (Trust.EXACT if is_whole else Trust.JOINED)
    assert late.status.counters.missed_before_join == begins
    assert late.status.counters.batches == len(talk.numbers)
    held, all_held = late.held(), late.tap.fold.claims()
    assert all(held[tier] <= all_held[tier] for tier in held)
    if begins == 0:
        assert held == all_held
