"""What a stream asks its publisher, how often, and what the answer has said so far.

One question is open at a time, and a new one takes its place. After so many in a row that left something open
no more may be asked: then what is missing is lost, and a repair is tried later.
"""

from indexer.actions import LossCause, RequestReplay, StreamAction
from indexer.repair_clock import RepairClock
from indexer.stream_limits import StreamLimits
from indexer.stream_mode import Mode
from indexer.stream_position import StreamPosition
from indexer.stream_status import StreamCounters
from indexer.trust import Trust


class Inquiry:
    """The questions of one stream. All operations O(1).

    Attributes, to be read only:
        has_replay: whether replays can be asked for.
        mode: what is asked, and so what live batches do meanwhile.
        last_live: highest live number of the publisher's process; None before the first.
        asked_below: numbers below were published before the question was asked.
        has_reply: something was replayed in answer to it.
        has_buffer: the publisher was heard to replay something, in answer to whatever.
        is_late: the first reply to it came later than asked; what follows is all that there is.
        is_short: the publisher's buffer is known not to reach back to what is missing; it never will again.
        is_purged: no claim rests on what was heard, although the stream goes on.
        is_same: the last number was replayed with the same payload.
        is_far_asked: about a number far beyond, without an answer so far.
        is_unproven: the connection broke, and no answer has told since whether what came is all of one process.
        repair: when to ask again for what was given up.
    """

    __slots__ = (
        "_counters",
        "_max_rounds",
        "_position",
        "_rounds",
        "asked_below",
        "has_buffer",
        "has_replay",
        "has_reply",
        "is_far_asked",
        "is_late",
        "is_purged",
        "is_same",
        "is_short",
        "is_unproven",
        "last_live",
        "mode",
        "repair",
    )

    def __init__(
        self,
        has_replay: bool,
        limits: StreamLimits,
        position: StreamPosition,
        counters: StreamCounters,
    ) -> None:
        self._counters = counters
        self._position = position
        self._max_rounds = limits.replay_rounds
        self._rounds = 0  # questions since one left nothing open
        self.has_replay = has_replay
        self.mode = Mode.FOLLOW
        self.last_live: int | None = None
        self.asked_below = 0
        self.has_reply = False
        self.has_buffer = False
        self.is_late = False
        self.is_short = False
        self.is_purged = False
        self.is_same = False
        self.is_far_asked = False
        self.is_unproven = False
        self.repair = RepairClock(limits.repair_s, limits.repair_max_s)

    @property
    def is_open(self) -> bool:
        """Whether the answer to a question is still of use."""
        return self.mode not in (Mode.FOLLOW, Mode.SUSPENDED)

    @property
    def can_ask(self) -> bool:
        """Whether one more question may be asked."""
        return self.has_replay and self._rounds < self._max_rounds

    def ask(self, mode: Mode, first_seq: int) -> RequestReplay:
        """Ask for a replay from ``first_seq``."""
        self.mode = mode
        self.has_reply = False
        self.is_late = False
        self.is_same = self._position.expected == 0
        self.asked_below = 0 if self.last_live is None else self.last_live + 1
        self._rounds += 1
        self._counters.replays += 1
        return RequestReplay(first_seq)

    def ask_for_missing(self) -> RequestReplay:
        """Ask for all from the expected number on."""
        is_start = self._position.next_seq is None
        return self.ask(Mode.JOIN if is_start else Mode.GAP, self._position.expected)

    def ask_for_rest(self) -> RequestReplay:
        """Ask for what follows in an answer that was cut; how late that began stays known.

        What has not come to the point so far is asked once more: nothing tells yet whose the answer is.
        """
        if self.mode is Mode.REBUILD:
            return self.ask(Mode.REBUILD, 0)
        if self.mode in (Mode.PROBE, Mode.CHECK):
            return self.ask(self.mode, max(self._position.expected - 1, 0))
        is_late = self.is_late
        request = self.ask_for_missing()
        self.is_late = is_late
        return request

    def ask_whether_same(self) -> RequestReplay:
        """Ask for the last number, to compare its payload; for all, where there is none."""
        if self._position.expected == 0:
            return self.ask(Mode.JOIN, 0)
        return self.ask(Mode.PROBE, self._position.expected - 1)

    def join(self, now: float) -> list[StreamAction]:
        """Ask for all from 0; later, where no more may be asked."""
        if self.can_ask:
            return [self.ask(Mode.JOIN, 0)]
        self.schedule_repair(now)
        return []

    def ask_about_far(self) -> RequestReplay | None:
        """Ask whether a number far beyond is of another process; None where that was asked, or nobody can answer."""
        if self.is_far_asked or not self.can_ask:
            return None
        self.is_far_asked = True
        return self.ask_whether_same()

    # What is heard

    def note_live(self, seq: int) -> None:
        """A live number of the publisher's process."""
        self.last_live = seq

    def forget_live(self) -> None:
        """Whose the live numbers were is not known any more."""
        self.last_live = None

    def leave_check(self) -> None:
        """The live socket speaks: nothing is left to check."""
        if self.mode is Mode.CHECK:
            self.mode = Mode.FOLLOW

    def hear_reply(self) -> bool:
        """A reply came; whether it is the first one to the question."""
        is_first = not self.has_reply
        self.has_reply = self.has_buffer = True
        return is_first

    def misses_something(self, cause: LossCause) -> bool:
        """Whether something stays missing as the answer fails. A look out of caution found nothing missing, but for
        replies that cannot be read."""
        if self.mode is Mode.CHECK:
            return cause is LossCause.UNREADABLE and self.is_same
        return self.mode is not Mode.REBUILD

    def find_same(self) -> None:
        """The last number is the same; what follows it was missed, unless the stream asks out of caution."""
        self.is_same = True
        self.is_unproven = False
        if self.mode is Mode.PROBE:
            self.mode = Mode.GAP

    def find_more(self) -> None:
        """The answer goes on behind what is known."""
        self.mode = Mode.GAP

    def find_all(self) -> None:
        """The answer takes the place of what is known."""
        self.mode = Mode.JOIN

    def find_late(self) -> None:
        """The answer began later than asked."""
        self.is_late = True

    def suspend(self) -> None:
        """The connection broke: an answer under way may be anybody's, and what comes next of another process."""
        self.is_unproven = True
        if self.is_open:
            self.mode = Mode.SUSPENDED

    def end(self) -> None:
        """The answer came to its end."""
        self.is_far_asked = False
        self.is_short |= self.is_late

    # What becomes of it

    def follow(self) -> None:
        """Nothing is asked, and nothing is left open."""
        self.mode = Mode.FOLLOW
        self.is_unproven = False
        self._rounds = 0

    def forgive(self) -> None:
        """The questions asked so far do not count."""
        self._rounds = 0

    def schedule_repair(self, now: float) -> None:
        """Something was given up: ask for it later."""
        if self.has_replay:
            self.repair.schedule(now)

    def begin_repair_if_due(self, now: float, *, is_purged: bool = False) -> bool:
        """Whether to ask for all from 0, because something is missing that this may bring.

        Args:
            is_purged: all claims are missing, so that whatever is left in the publisher's buffer brings some.
        """
        self.is_purged = is_purged
        if is_purged or (self._position.is_repairable and not self.is_short):
            self.repair.ensure(now)
        elif self._position.standing is Trust.EXACT:
            self.repair.cancel()
        if not self.repair.begin_if_due(now):
            return False
        self.forgive()
        return True

    def forget(self) -> None:
        """It is another process: what was asked and heard of the last one is void."""
        self.last_live = None
        self.is_far_asked = False
        self.is_short = False
        self.repair.cancel()
        self.mode = Mode.FOLLOW

    def check(self) -> None:
        """Verify that nobody is asked who cannot answer, nor too often."""
        state = f"{self.mode}, {self._rounds} questions"
        is_asking = self.is_open or self.mode.is_holding
        assert self.has_replay or not is_asking, f"replay without a socket: {state}"
        assert self._rounds <= max(1, self._max_rounds), f"asked too often: {state}"
