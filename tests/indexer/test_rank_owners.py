"""Engines that number their ranks from 0 on each host: a rank is what its own publisher says, nobody else's."""

from indexer import ForgetReason, Trust
from indexer.intake import Intake
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
FIRST, SECOND = (
    EventSource(Rank(WORKER, dp_rank), f"tcp://w:{dp_rank}", f"tcp://w:1{dp_rank}")
    for dp_rank in range(2)
)


def _payload(block: int, dp_rank: int | None) -> bytes:
    stored = BlockStored([block], None, [1], 1, "GPU")
    return encode_batch(EventBatch(float(block), [stored], dp_rank))


class Town:
    """Two publishers of one worker, each at a port of its own."""

    def __init__(self) -> None:
        self.sink = SetSink()
        self.intake = Intake(self.sink)
        for source in (FIRST, SECOND):
            self.intake.add_source(source, 0.0)

    def connect(self, source: EventSource, *buffer: tuple[int, bytes]) -> None:
        """It is connected, and replays what it has."""
        if self.intake.on_connected(source, 0.0):
            self.replay(source, *buffer)

    def replay(self, source: EventSource, *buffer: tuple[int, bytes]) -> None:
        replies: list[ReplayReply | ReplayEnd] = [ReplayReply(*one) for one in buffer]
        for reply in [*replies, ReplayEnd()]:
            assert not self.intake.on_replay(source, replay_frames(b"", reply), 0.0)
        self.intake.check()

    def hear(self, source: EventSource, seq: int, block: int, dp_rank: int | None) -> int | None:
        """A live message; returns the number from which a replay is asked for."""
        message = LiveMessage(b"", seq, _payload(block, dp_rank))
        asked = self.intake.on_live(source, live_frames(message), 0.0)
        self.intake.check()
        return asked[0].first_seq if asked else None

    def misnamed(self, source: EventSource) -> int:
        return self.intake.source_counters()[source.rank].misnamed_ranks

    def claims(self, source: EventSource) -> set[object]:
        return set(self.sink.claims.get(source.rank, set()))


def test_a_rank_is_what_its_own_publisher_says() -> None:
    """The second host calls its rank 0, too: its blocks are not the first one's."""
    town = Town()
    town.connect(FIRST)
    town.connect(SECOND)
    town.hear(SECOND, 0, 20, dp_rank=0)
    town.hear(FIRST, 0, 10, dp_rank=0)
    town.hear(SECOND, 1, 21, dp_rank=0)
    assert (town.claims(FIRST), town.claims(SECOND)) == ({10}, {20, 21})
    assert {town.sink.trust[one.rank] for one in (FIRST, SECOND)} == {Trust.EXACT}
    assert (town.misnamed(FIRST), town.misnamed(SECOND)) == (0, 2)


def test_what_was_said_in_its_place_is_forgotten() -> None:
    town = Town()
    town.connect(SECOND)
    town.hear(SECOND, 0, 20, dp_rank=0)
    assert town.claims(FIRST) == {20}, "whoever speaks for a rank without a publisher is believed"
    town.connect(FIRST, (0, _payload(10, 0)), (1, _payload(11, 0)))
    assert town.sink.forgets == [(FIRST.rank, ForgetReason.WORKER_REMOVED)]
    assert [(one, ask.first_seq) for one, ask in town.intake.on_tick(0.25)] == [(SECOND, 0)]
    town.replay(SECOND, (0, _payload(20, 0)), (1, _payload(21, 0)))
    town.hear(FIRST, 2, 12, dp_rank=0)
    assert (town.claims(FIRST), town.claims(SECOND)) == ({10, 11, 12}, {20, 21})
    assert {town.sink.trust[one.rank] for one in (FIRST, SECOND)} == {Trust.EXACT}


def test_a_publisher_that_is_away_for_a_while_keeps_its_rank() -> None:
    town = Town()
    town.connect(FIRST)
    town.connect(SECOND)
    town.hear(FIRST, 0, 10, dp_rank=None)
    town.intake.on_disconnected(FIRST, 1.0)
    town.hear(SECOND, 0, 20, dp_rank=0)
    assert (town.claims(FIRST), town.claims(SECOND)) == ({10}, {20})


def test_replies_are_told_apart_in_the_same_way() -> None:
    town = Town()
    town.connect(FIRST)
    town.connect(SECOND, (0, _payload(20, 0)), (1, _payload(21, 0)))
    assert (town.claims(FIRST), town.claims(SECOND)) == (set(), {20, 21})


def test_a_rank_without_a_publisher_is_whoevers_names_it() -> None:
    """One port for all ranks, though each was said to have one: nothing is connected at the others."""
    town = Town()
    town.connect(FIRST)
    town.hear(FIRST, 0, 10, dp_rank=0)
    if (first_seq := town.hear(FIRST, 0, 20, dp_rank=1)) is not None:
        town.replay(FIRST, (first_seq, _payload(20, 1)))
    assert (town.claims(FIRST), town.claims(SECOND)) == ({10}, {20})
    assert town.misnamed(FIRST) == 0
