"""A fake network between publishers and intake, with every fault that a real one has, from one seed.

The live socket keeps order within a connection and says nothing of what it drops; what came by a broken
connection arrives before the break is told, or, where the break was noticed late, right after the
reconnect. A subscription is in force some time after the connection. The replay socket answers from the
buffer as it stands when the request arrives, or not at all, or breaks off, or skips.
"""

import heapq
from collections.abc import Callable
from dataclasses import replace
from random import Random

from indexer.actions import RequestReplay
from indexer.intake import Intake
from indexer.stream_limits import StreamLimits
from indexer.trust import Trust
from protocol import (
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    live_frames,
    replay_frames,
)
from tests.indexer.set_sink import SetSink
from tests.simulation.stream_publisher import SimPublisher
from tests.simulation.stream_scenario import Faults, Scenario

LIMITS = StreamLimits(
    hold_batches=8,
    hold_bytes=1024,
    remembered_payloads=16,
    replay_timeout_s=1.0,
    replay_total_s=6.0,
    replay_replies=60,
    replay_rounds=5,
    repair_s=2.0,
    repair_max_s=8.0,
    settle_s=0.5,
    silence_s=3.0,
)
TICK_S = 0.25


class StreamWorld:
    """Publishers, network, intake and the truth. ``run`` plays chaos, healing and quiet.

    Args:
        seed: of all that happens.
        has_last_words: publish a little after the healing, so that the live socket shows what is
            missing; else silence follows, and only the replay socket can show it.
        has_more_faults: delays, foreign numbers, partitions and garbled replies, too.
    """

    def __init__(
        self, seed: int, *, has_last_words: bool = True, has_more_faults: bool = False
    ) -> None:
        self.rng = Random(seed)
        self.scenario = Scenario.draw(self.rng)
        if has_more_faults:
            faults = self.scenario.faults.and_more(Random(-1 - seed))
            self.scenario = replace(self.scenario, faults=faults)
        self._has_last_words = has_last_words
        self.faults = self.scenario.faults
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._num_events = 0
        self.sink = SetSink()
        # A cut conversation gets on by what its own rank was sent; several ranks share one.
        replies = LIMITS.replay_replies if self.scenario.num_ranks == 1 else 10_000
        self.intake = Intake(self.sink, replace(LIMITS, replay_replies=replies))
        worker = WorkerId("w")
        self.source = EventSource(
            Rank(worker), "live", "replay" if self.scenario.has_replay else None, "kv"
        )
        self.publishers = {
            Rank(worker, dp_rank): SimPublisher(
                self.rng,
                dp_rank,
                buffer_steps=self.scenario.buffer_steps,
                has_first_clear=self.scenario.has_first_clear,
            )
            for dp_rank in range(self.scenario.num_ranks)
        }
        self._connection = 0  # counts connections; an odd one is up
        self._subscribed_at = 0.0
        self._last_delivery = 0.0
        self._in_flight: dict[int, tuple[Rank, int, int, bytes]] = {}
        self._cut_until = 0.0  # no packet gets through until then
        self._is_moved = False  # another process is there since the cut began
        self._conversation = 0
        self._heard_epoch: dict[Rank, int] = {}
        self.blind: set[Rank] = set()  # a restart that nothing heard can reveal

    def run(self) -> None:
        """Faults for a while, then a healthy network, then silence."""
        if self.scenario.is_late_join:
            for _ in range(self.rng.randrange(1, 30)):
                self._publish()
        self.intake.add_source(self.source, self.now)
        self._at(0.0, self._tick)
        self._connect()
        chaos_s = self.rng.uniform(5, 25)
        while self.now < chaos_s:
            self._run_until(self.now + self.rng.expovariate(6))
            self._publish()
            self._maybe_break()
        self.faults = Faults()
        self._run_until(max(self.now, self._cut_until) + 4)
        for _ in range(6 if self._has_last_words else 0):
            for rank in self.publishers:
                self._publish(rank)
            self._run_until(self.now + 0.3)
        self._run_until(self.now + 30)

    def verify(self) -> None:
        """At quiet: what is called exact is the truth, and nothing false is believed."""
        for rank, publisher in self.publishers.items():
            if rank in self.blind:
                continue
            claims, trust = self.sink.claims[rank], self.sink.trust[rank]
            assert trust is not Trust.REBUILDING, f"{rank} never came to rest"
            assert trust is not Trust.NONE or not claims, f"{rank} was never heard: {claims}"
            if trust is Trust.EXACT:
                assert claims == publisher.held, f"{rank}: {claims} is not {publisher.held}"
            if trust is Trust.JOINED:
                assert claims <= publisher.held, f"{rank}: {claims - publisher.held} is not held"
            status = self.intake.status(rank)
            if status is not None:
                assert status.counters.lost_batches < 10_000, "more than was ever published"
            if self._must_be_exact():
                assert trust is Trust.EXACT, f"{rank} is {trust}, though all could be replayed"

    def _must_be_exact(self) -> bool:
        is_whole = self.scenario.buffer_steps > 1000 and self.scenario.faults.garble == 0
        return self.scenario.has_replay and is_whole

    # Time

    def _at(self, time: float, call: Callable[[], None]) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (max(time, self.now), self._num_events, call))

    def _run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, call = heapq.heappop(self._events)
            call()
            self.intake.check()
        self.now = end

    def _tick(self) -> None:
        for _, request in self.intake.on_tick(self.now):
            self._ask([request])
        self._at(self.now + TICK_S, self._tick)

    # Live

    @property
    def _is_up(self) -> bool:
        return self._connection % 2 == 1

    def _publish(self, rank: Rank | None = None) -> None:
        rank = rank or self.rng.choice(list(self.publishers))
        publisher = self.publishers[rank]
        # A garbled batch names no rank: where several speak, only a later number shows whose it was.
        can_garble = self.scenario.num_ranks == 1 or self._has_last_words
        is_garbled = can_garble and self.rng.random() < self.faults.garble
        seq, payload = publisher.publish(self.now, is_garbled=is_garbled)
        if not self._is_up or self.now < self._subscribed_at:
            return
        if self.rng.random() < self.faults.drop:
            return
        if self.now < self._cut_until and (self._is_moved or self.rng.random() < 0.5):
            return
        self._send(rank, publisher.epoch, seq, payload)
        if self.rng.random() < self.faults.duplicate:
            self._send(rank, publisher.epoch, seq, payload)

    def _send(self, rank: Rank, epoch: int, seq: int, payload: bytes) -> None:
        arrival = max(self._last_delivery, self._cut_until, self.now + self.rng.expovariate(20))
        if self.faults.delay and self.rng.random() < self.faults.delay:
            arrival += self.rng.uniform(0.5, 2.0)
        if self.rng.random() < self.faults.reorder:
            arrival += 0.3
        else:
            self._last_delivery = arrival
        message, connection = self._num_events, self._connection
        self._in_flight[message] = (rank, epoch, seq, payload)

        def deliver() -> None:
            if message in self._in_flight and connection == self._connection:
                self._deliver(*self._in_flight.pop(message))

        self._at(arrival, deliver)

    def _deliver(self, rank: Rank, epoch: int, seq: int, payload: bytes) -> None:
        if self.rng.random() < self.faults.nonsense:
            self._ask(self.intake.on_live(self.source, [b"kv", b"\xff" * 8, b""], self.now))
            self._ask(self.intake.on_live(self.source, [b"other", b"\0" * 8, payload], self.now))
        if self.faults.foreign and self.rng.random() < self.faults.foreign:
            number = (1 << 63) - 1 - self.rng.randrange(5)
            foreign = live_frames(LiveMessage(b"kv", number, payload))
            self._ask(self.intake.on_live(self.source, foreign, self.now))
        self._note_blindness(rank, epoch, seq)
        frames = live_frames(LiveMessage(b"kv", seq, payload))
        self._ask(self.intake.on_live(self.source, frames, self.now))

    def _note_blindness(self, rank: Rank, epoch: int, seq: int) -> None:
        """Without a replay socket, a restart whose first heard number is the expected one is invisible."""
        status = self.intake.status(rank)
        is_expected = (
            status is not None and status.last_seq is not None and seq == status.last_seq + 1
        )
        is_other = self._heard_epoch.get(rank, epoch) != epoch
        if is_other and is_expected and not self.scenario.has_replay:
            self.blind.add(rank)
        self._heard_epoch[rank] = epoch

    def _connect(self) -> None:
        if self._is_up:
            return
        self._connection += 1
        self._subscribed_at = self.now + self.rng.uniform(0, 0.3)
        self._last_delivery = self.now
        self._ask(self.intake.on_connected(self.source, self.now))

    def _maybe_break(self) -> None:
        if self.rng.random() < self.faults.restart / 6:
            self._break()
            self._restart()
        elif self.rng.random() < self.faults.disconnect / 6:
            self._break()
        elif self.faults.partition and self.rng.random() < self.faults.partition / 6:
            self._cut()

    def _restart(self) -> None:
        for publisher in self.publishers.values():
            publisher.restart()

    def _cut(self) -> None:
        """A half-open connection. It heals, and what TCP kept comes late; or it is given up at last, and by
        then another process may be there."""
        if not self._is_up or self.now < self._cut_until:
            return
        self._cut_until = self.now + self.rng.uniform(0.5, 4.0)
        fate = self.rng.random()
        self._is_moved = fate < 0.3
        if self._is_moved:
            self._restart()
        if fate < 0.6:
            connection = self._connection
            self._at(self._cut_until, lambda: self._give_up(connection))

    def _give_up(self, connection: int) -> None:
        """The heartbeat of this connection was missed for too long."""
        self._is_moved = False
        if connection == self._connection:
            self._in_flight.clear()
            self._break()

    def _break(self) -> None:
        """The connection breaks; a tail of what is under way is lost with it."""
        if not self._is_up:
            return
        self._connection += 1
        self._conversation += 1
        rest = list(self._in_flight.values())
        rest = rest[: self.rng.randint(0, len(rest))]
        self._in_flight.clear()
        away_s = self.rng.uniform(0.1, 3)
        if self.rng.random() < 0.7:  # noticed at once
            for message in rest:
                self._deliver(*message)
            self._ask(self.intake.on_disconnected(self.source, self.now))
            self._at(self.now + away_s, self._connect)
        else:
            self._at(self.now + away_s, lambda: self._reconnect_late(rest))

    def _reconnect_late(self, rest: list[tuple[Rank, int, int, bytes]]) -> None:
        self._ask(self.intake.on_disconnected(self.source, self.now))
        self._connect()
        for message in rest:
            self._deliver(*message)

    # Replay

    def _ask(self, requests: list[RequestReplay]) -> None:
        for request in requests:
            assert self.scenario.has_replay, "asked for a replay where there is none"
            self._conversation += 1
            conversation = self._conversation
            if self.rng.random() >= self.faults.replay_hangs:
                self._at(
                    self.now + self.rng.uniform(0, 0.15),
                    lambda: self._answer(conversation, request.first_seq),  # noqa: B023
                )

    def _answer(self, conversation: int, first_seq: int) -> None:
        if conversation != self._conversation or self.now < self._cut_until:
            return
        replies: list[ReplayReply | ReplayEnd] = []
        for publisher in self.publishers.values():
            found = [ReplayReply(*item) for item in publisher.buffer if item[0] >= first_seq]
            kept = [r for r in found[1:] if self.rng.random() >= self.faults.replay_skips]
            replies += found[:1] + kept
        replies.append(ReplayEnd())
        if self.rng.random() < self.faults.replay_breaks_off:
            replies = replies[: self.rng.randrange(len(replies))]
        arrival = self.now
        for reply in replies:
            arrival += self.rng.expovariate(400)
            self._at(arrival, lambda reply=reply: self._reply(conversation, reply))  # type: ignore[misc]

    def _reply(self, conversation: int, reply: ReplayReply | ReplayEnd) -> None:
        if conversation != self._conversation:
            return
        if self.rng.random() < self.faults.nonsense:
            self._ask(self.intake.on_replay(self.source, [b"kv"], self.now))
        frames = replay_frames(b"kv", reply)
        if self.faults.replay_garbles and self.rng.random() < self.faults.replay_garbles:
            frames[-2] = frames[-2][:7]
        if not self.scenario.has_topic_frame:
            del frames[1]
        self._ask(self.intake.on_replay(self.source, frames, self.now))
