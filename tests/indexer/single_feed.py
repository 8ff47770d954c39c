"""The feed of one publisher, with a sink, and short words for what it hears."""

from collections.abc import Sequence

from indexer import RequestReplay, SourceFeed, StreamLimits, Trust
from protocol import (
    BlockStored,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    encode_batch,
    live_frames,
    replay_frames,
)
from tests.indexer.set_sink import SetSink

WORKER = WorkerId("w")
LIMITS = StreamLimits(replay_timeout_s=5.0, replay_total_s=60.0, max_dp_rank=7)


class Feed:
    """A feed with its sink and short words for what it hears."""

    def __init__(
        self,
        *,
        has_replay: bool = True,
        own_rank: int = 0,
        limits: StreamLimits = LIMITS,
        sink: SetSink | None = None,
    ) -> None:
        self.sink = SetSink() if sink is None else sink
        replay = "tcp://replay" if has_replay else None
        source = EventSource(Rank(WORKER, own_rank), "tcp://live", replay, "kv")
        self.feed = SourceFeed(source, self.sink, limits)
        self.now = 0.0

    def connected(self) -> list[int]:
        return self.asked(self.feed.on_connected(self.now))

    def disconnected(self) -> list[int]:
        return self.asked(self.feed.on_disconnected(self.now))

    def live(self, seq: int, dp_rank: int | None = 0, topic: bytes = b"kv") -> list[int]:
        frames = live_frames(LiveMessage(topic, seq, batch(seq, dp_rank)))
        return self.frames(frames)

    def frames(self, frames: Sequence[bytes]) -> list[int]:
        return self.asked(self.feed.on_live(frames, self.now))

    def reply(self, seq: int, dp_rank: int | None = 0) -> list[int]:
        frames = replay_frames(b"kv", ReplayReply(seq, batch(seq, dp_rank)))
        return self.asked(self.feed.on_replay(frames, self.now))

    def end(self) -> list[int]:
        return self.asked(self.feed.on_replay(replay_frames(b"kv", ReplayEnd()), self.now))

    def tick(self, now: float) -> list[int]:
        self.now = now
        return self.asked(self.feed.on_tick(now))

    def asked(self, requests: list[RequestReplay]) -> list[int]:
        self.feed.check()
        return [request.first_seq for request in requests]

    def claims(self, dp_rank: int) -> set[int | bytes]:
        return self.sink.claims[Rank(WORKER, dp_rank)]

    def trust(self, dp_rank: int) -> Trust | None:
        return self.sink.trust.get(Rank(WORKER, dp_rank))


def batch(seq: int, dp_rank: int | None) -> bytes:
    block = 100 * ((dp_rank or 0) + 1) + seq
    stored = BlockStored([block], None, [1], 1, "GPU")
    return encode_batch(EventBatch(float(seq), [stored], dp_rank))
