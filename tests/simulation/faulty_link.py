"""One publisher's two sockets over a network with faults: live messages, and replays of every kind.

The live socket keeps order within a connection and says nothing of what it drops; what came by a broken
connection arrives before the break is told, or right after the reconnect where the break was noticed late.
A subscription is in force some time after the connection.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from zlib import crc32

from indexer import Intake, RequestReplay
from protocol import (
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    live_frames,
    replay_frames,
)
from tests.simulation.agenda import Agenda
from tests.simulation.fleet_scenario import Replay, Scenario
from tests.simulation.tally import Met, Tally, replay_of
from worker.batch_log import BatchLog

_GARBAGE = b"\xc1"


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on its way.

    Attributes:
        epoch: of the process that sent it.
        has_clear: it clears every tier.
    """

    rank: Rank
    epoch: int
    message: LiveMessage
    has_clear: bool


class FaultyLink:
    """The way from one publisher to the intake.

    Args:
        logs: what the ranks behind the socket have published, as of now.
        on_told: called after everything the intake was told.
        tally: counts what happens.

    Attributes:
        is_cut_off: nothing gets through, and no connection has broken so far.
        scenario: faults and kind of replay, as of now.
        blind: ranks whose restart nothing that was heard can reveal: without replay, the first number
            heard of the new process is the very one that was expected of the old.
    """

    def __init__(
        self,
        source: EventSource,
        agenda: Agenda,
        rng: Random,
        scenario: Scenario,
        intake: Intake,
        logs: Callable[[], Mapping[Rank, BatchLog]],
        on_told: Callable[[], None],
        *,
        tally: Tally,
    ) -> None:
        self.source, self.scenario = source, scenario
        self._agenda, self._rng, self._intake, self._logs = agenda, rng, intake, logs
        self._on_told, self._tally = on_told, tally
        self._connection = 0  # counts connections; an odd one is up
        self._conversation = 0
        self._subscribed_at = 0.0
        self._last_arrival = 0.0
        self.is_cut_off = False
        self._under_way: dict[int, Sent] = {}
        self._num_sent = 0
        self._heard_epoch: dict[Rank, int] = {}
        self.blind: set[Rank] = set()

    @property
    def is_up(self) -> bool:
        """Whether the live socket is connected."""
        return self._connection % 2 == 1

    # Live

    def send(self, sent: Sent) -> None:
        """The publisher sends a message to whoever is subscribed."""
        if not self.is_up or self.is_cut_off:
            return
        if self._agenda.now < self._subscribed_at:
            self._tally[Met.BEFORE_SUBSCRIPTION] += 1
            return
        faults = self.scenario.faults
        if self._rng.random() < faults.drop:
            self._tally[Met.DROPPED] += 1
            return
        is_twice = self._rng.random() < faults.duplicate
        self._tally[Met.DUPLICATED] += is_twice
        for _ in range(1 + is_twice):
            self._tally[Met.SENT] += 1
            arrival = max(self._last_arrival, self._agenda.now + self._rng.expovariate(20))
            if faults.delay and self._rng.random() < faults.delay:
                self._tally[Met.DELAYED] += 1
                arrival += self._rng.uniform(0.5, 2.0)
            self._last_arrival = arrival
            self._num_sent += 1
            number, connection = self._num_sent, self._connection
            self._under_way[number] = sent
            self._agenda.at(arrival, lambda: self._arrive(number, connection))  # noqa: B023

    def connect(self) -> None:
        """The live socket connects, if it is not."""
        if self.is_up:
            return
        self._connection += 1
        self.is_cut_off = False
        late_s = self._rng.uniform(0, self.scenario.subscription_s)
        self._subscribed_at = self._agenda.now + late_s
        self._last_arrival = self._agenda.now
        self._tell(self._intake.on_connected(self.source, self._agenda.now))

    def break_off(self, away_s: float) -> bool:
        """The connection breaks; a tail of what is under way is lost with it.

        Returns:
            Whether that will be noticed with the reconnect only.
        """
        if not self.is_up:
            return False
        self._tally[Met.DISCONNECTED] += 1
        self._connection += 1
        self._conversation += 1
        rest = list(self._under_way.values())
        rest = rest[: self._rng.randint(0, len(rest))]
        self._under_way.clear()
        is_noticed = self._rng.random() < 0.7
        if is_noticed:
            for sent in rest:
                self._deliver(sent)
            self._tell(self._intake.on_disconnected(self.source, self._agenda.now))
            self._agenda.after(away_s, self.connect)
        else:
            self._tally[Met.NOTICED_LATE] += 1
            self._agenda.after(away_s, lambda: self._reconnect_late(rest))
        return not is_noticed

    def cut_off(self) -> None:
        """Nothing gets through in either direction, and no connection breaks until it is noticed."""
        self._tally[Met.PARTITIONED] += 1
        self.is_cut_off = True
        self._conversation += 1

    def _reconnect_late(self, rest: list[Sent]) -> None:
        self._tell(self._intake.on_disconnected(self.source, self._agenda.now))
        self.connect()
        for sent in rest:
            self._deliver(sent)

    def _arrive(self, number: int, connection: int) -> None:
        sent = self._under_way.pop(number, None)
        if sent is not None and connection == self._connection and not self.is_cut_off:
            self._deliver(sent)

    def _deliver(self, sent: Sent) -> None:
        if self._rng.random() < self.scenario.faults.foreign:
            self._tally[Met.FOREIGN_MESSAGE] += 1
            for frames in (
                [b"other", b"\0" * 8, sent.message.payload],
                [b"", b"\xff" * 8, b""],
                [],
            ):
                self._tell(self._intake.on_live(self.source, frames, self._agenda.now))
        self._note_blindness(sent)
        message = sent.message
        payload = self._as_published(message.payload)
        frames = live_frames(LiveMessage(message.topic, message.seq, payload))
        self._tell(self._intake.on_live(self.source, frames, self._agenda.now))

    def _note_blindness(self, sent: Sent) -> None:
        status = self._intake.status(sent.rank)
        last_seq = None if status is None else status.last_seq
        is_other = self._heard_epoch.get(sent.rank, sent.epoch) != sent.epoch
        is_expected = last_seq is not None and sent.message.seq == last_seq + 1
        if is_other or sent.has_clear:
            self.blind.discard(sent.rank)
        if is_other and is_expected and self.source.replay_endpoint is None and not sent.has_clear:
            self.blind.add(sent.rank)
        self._heard_epoch[sent.rank] = sent.epoch

    def _as_published(self, payload: bytes) -> bytes:
        """Some batches of a publisher cannot be decoded, live or replayed."""
        is_garbled = self.scenario.replay is Replay.UNREADABLE and crc32(payload) % 16 == 0
        self._tally[Met.UNREADABLE] += is_garbled
        return _GARBAGE + payload if is_garbled else payload

    # Replay

    def ask(self, request: RequestReplay) -> None:
        """The stream wants the past; it takes the place of what it wanted before."""
        assert self.source.replay_endpoint is not None, "asked for a replay where there is none"
        self._conversation += 1
        conversation = self._conversation
        self._tally[replay_of(self.scenario.replay)] += 1
        is_mute = self.scenario.replay is Replay.HANGING or self.is_cut_off
        if not is_mute:
            is_late = self.scenario.replay is Replay.LATE
            self._tally[Met.LATE_REPLY] += is_late
            delay_s = self._rng.uniform(0.3, 2.0) if is_late else self._rng.uniform(0, 0.15)
            self._agenda.after(delay_s, lambda: self._answer(conversation, request.first_seq))

    def _answer(self, conversation: int, first_seq: int) -> None:
        if conversation != self._conversation:
            return
        replies: list[ReplayReply | ReplayEnd] = []
        for log in self._logs().values():
            kept = log.replay(first_seq)[:-1]
            is_short = bool(kept) and isinstance(kept[0], ReplayReply) and kept[0].seq > first_seq
            self._tally[Met.BEGINS_LATE] += is_short
            replies += self._as_kept(kept)
        replies.append(ReplayEnd())
        if self.scenario.replay is Replay.BREAKING and self._rng.random() < 0.5:
            self._tally[Met.BROKEN_OFF] += 1
            replies = replies[: self._rng.randrange(len(replies))]
        arrival = self._agenda.now
        for reply in replies:
            arrival += self._rng.expovariate(400)
            self._agenda.at(arrival, partial(self._reply, conversation, reply))

    def _as_kept(self, replies: list[ReplayReply | ReplayEnd]) -> list[ReplayReply | ReplayEnd]:
        """Of one rank: what is left out is never the first, which would be a short buffer."""
        if self.scenario.replay is not Replay.SKIPPING:
            return replies
        kept = replies[:1] + [reply for reply in replies[1:] if self._rng.random() > 0.1]
        self._tally[Met.SKIPPED] += len(replies) - len(kept)
        return kept

    def _reply(self, conversation: int, reply: ReplayReply | ReplayEnd) -> None:
        if conversation != self._conversation:
            return
        if isinstance(reply, ReplayReply):
            reply = ReplayReply(reply.seq, self._as_published(reply.payload))
        frames, faults = replay_frames(b"", reply), self.scenario.faults
        if faults.replay_garbles and self._rng.random() < faults.replay_garbles:
            self._tally[Met.GARBLED_REPLY] += 1
            frames[-2] = frames[-2][:7]
        if not self.scenario.has_topic_frame:
            del frames[1]
        self._tally[Met.WITH_TOPIC if self.scenario.has_topic_frame else Met.WITHOUT_TOPIC] += 1
        if self._rng.random() < faults.foreign:
            self._tally[Met.FOREIGN_REPLY] += 1
            strange = [b"x"] * self._rng.randrange(5)
            self._tell(self._intake.on_replay(self.source, strange, self._agenda.now))
        self._tell(self._intake.on_replay(self.source, frames, self._agenda.now))

    def _tell(self, requests: list[RequestReplay]) -> None:
        self._on_told()
        for request in requests:
            self.ask(request)
