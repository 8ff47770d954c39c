import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import (
    BadFramesError,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    live_frames,
    parse_live,
    parse_replay,
    parse_replay_request,
    replay_frames,
    replay_request,
)

SEVEN = (7).to_bytes(8, "big")
END = b"\xff" * 8


@given(st.binary(max_size=5), st.integers(0, (1 << 63) - 1), st.binary(max_size=9))
def test_live_round_trip(topic: bytes, seq: int, payload: bytes) -> None:
    message = LiveMessage(topic, seq, payload)
    assert parse_live(live_frames(message)) == message


@pytest.mark.parametrize(
    "frames",
    [
        [b"", b"", SEVEN, b"p"],
        [b"", b"topic", SEVEN, b"p"],
        [b"", SEVEN, b"p"],
        [SEVEN, b"p"],
    ],
)
def test_both_replay_framings(frames: list[bytes]) -> None:
    assert parse_replay(frames) == ReplayReply(7, b"p")


@pytest.mark.parametrize("frames", [[b"", b"", END, b""], [b"", END, b""], [END, b""]])
def test_end_marker(frames: list[bytes]) -> None:
    assert parse_replay(frames) == ReplayEnd()


@pytest.mark.parametrize(
    "frames",
    [[], [b""], [SEVEN], [b"", b"x", b"p"], [b"", b"", b"", SEVEN, b"p"], [b"", b"\xff" * 7, b""]],
)
def test_bad_replay_frames(frames: list[bytes]) -> None:
    with pytest.raises(BadFramesError):
        parse_replay(frames)


@pytest.mark.parametrize(
    "frames",
    [[], [b"t", SEVEN], [b"t", SEVEN, b"p", b""], [b"t", b"\x07", b"p"], [b"t", END, b"p"]],
)
def test_bad_live_frames(frames: list[bytes]) -> None:
    with pytest.raises(BadFramesError):
        parse_live(frames)


@given(st.integers(0, (1 << 63) - 1))
def test_request_round_trip(first_seq: int) -> None:
    assert parse_replay_request(replay_request(first_seq)) == first_seq


@pytest.mark.parametrize("frames", [[], [SEVEN], [b"x", SEVEN], [b"", SEVEN, b""], [b"", b"7"]])
def test_bad_requests(frames: list[bytes]) -> None:
    with pytest.raises(BadFramesError):
        parse_replay_request(frames)


@pytest.mark.parametrize("reply", [ReplayReply(3, b"x"), ReplayEnd()])
def test_reply_round_trip(reply: ReplayReply | ReplayEnd) -> None:
    assert parse_replay(replay_frames(b"topic", reply)) == reply
