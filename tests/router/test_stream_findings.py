"""What is wrong with a stream or its replays is named, with the cause and what to change."""

from collections.abc import Callable

import pytest

from indexer.findings import Finding, FindingKind
from protocol import (
    BlockStored,
    EventBatch,
    LiveMessage,
    ReplayEnd,
    ReplayReply,
    encode_batch,
    live_frames,
    replay_frames,
)
from tests.router.brains import TestFleet, fleet, source

ENDPOINT = source(has_replay=True)
NO_REPLAY = source(has_replay=False)


def _payload(seq: int) -> bytes:
    stored = BlockStored([seq], None, [1, 2, 3, seq], 4, "GPU")
    return encode_batch(EventBatch(float(seq), [stored]))


def _live(one: TestFleet, seq: int, payload: bytes | None = None) -> None:
    (spoken,) = one.brains.intake.sources
    frames = live_frames(LiveMessage(b"", seq, payload or _payload(seq)))
    one.brains.intake.on_live(spoken, frames, one.clock.now)


def _reply(one: TestFleet, *frames: list[bytes]) -> None:
    for reply in frames:
        one.brains.intake.on_replay(ENDPOINT, reply, one.clock.now)


def _pass(one: TestFleet, seconds: int) -> None:
    for _ in range(seconds):
        one.tick(1.0)
        one.brains.intake.on_tick(one.clock.now)


def _replayed(seq: int, payload: bytes | None = None) -> list[bytes]:
    return replay_frames(b"", ReplayReply(seq, payload or _payload(seq)))


END = replay_frames(b"", ReplayEnd())


def _without_replay(one: TestFleet) -> None:
    _live(one, 0)
    _live(one, 5)


def _unanswered(one: TestFleet) -> None:
    _live(one, 0)
    _live(one, 5)
    _pass(one, 6)


def _truncated(one: TestFleet) -> None:
    _live(one, 0)
    _live(one, 5)
    _reply(one, _replayed(4), _replayed(5), END)


def _undecodable(one: TestFleet) -> None:
    _live(one, 0)
    _live(one, 1, b"\xc1")
    _reply(one, _replayed(1, b"\xc1"), END)


def _garbled(one: TestFleet) -> None:
    _live(one, 0)
    _live(one, 5)
    _reply(one, [b"what"], END)


CAUSES: dict[str, tuple[Callable[[TestFleet], None], str, str, str]] = {
    "no replay": (_without_replay, "loss_unrepaired", "losses_no_replay", "replay_endpoint"),
    "unanswered": (_unanswered, "loss_unrepaired", "losses_unanswered", "replay endpoint"),
    "truncated": (_truncated, "loss_unrepaired", "losses_truncated", "buffer_steps"),
    "undecodable": (_undecodable, "events_unreadable", "unreadable_batches", "version"),
    "garbled": (_garbled, "events_unreadable", "unreadable_batches", "version"),
}


def _findings(one: TestFleet) -> dict[str, Finding]:
    return {one.kind.value: one for one in one.brains.index.findings(one.clock.now)}


@pytest.mark.parametrize(("cause", "kind", "evidence", "advice"), CAUSES.values(), ids=CAUSES)
def test_a_loss_is_named_by_its_cause(
    cause: Callable[[TestFleet], None], kind: str, evidence: str, advice: str
) -> None:
    with fleet() as one:
        one.learn("w0", sources=(NO_REPLAY if cause is _without_replay else ENDPOINT,))
        cause(one)
        found = _findings(one)
        other = {"loss_unrepaired", "events_unreadable"} - {kind}
        assert not other & found.keys(), "one loss, one cause"
        assert found[kind].evidence[evidence] == 1
        assert found[kind].evidence["doubtful_claims"] == 1
        assert advice in found[kind].advice


def test_a_replay_socket_that_never_answers_is_a_finding_and_one_that_answers_ends_it() -> None:
    with fleet() as one:
        one.learn("w0", sources=(ENDPOINT,))
        one.brains.intake.on_connected(ENDPOINT, one.clock.now)
        _pass(one, 6)
        assert "replay_failing" not in _findings(one), "once may be an accident"
        _pass(one, 16)
        found = _findings(one)["replay_failing"]
        assert found.ranks == (ENDPOINT.rank,)
        assert found.evidence["replay_endpoint"] == ENDPOINT.replay_endpoint
        assert found.evidence["unanswered_replays"] == 3
        assert found.evidence["failing_s"] == 17.0
        one.registry.probed(ENDPOINT.rank.worker, None, one.clock.now)
        while not one.brains.intake.is_replaying(ENDPOINT):
            _pass(one, 1)
        _reply(one, END)
        one.tick(1.0)
        assert "replay_failing" not in _findings(one)


@pytest.mark.parametrize("is_up", [False, True])
def test_replays_of_a_worker_that_is_down_fail_for_no_reason_of_their_own(is_up: bool) -> None:
    with fleet() as one:
        worker = one.learn("w0", sources=(ENDPOINT,))
        for _ in range(0 if is_up else 3):
            one.registry.probed(worker, "refused", one.clock.now)
        one.brains.intake.on_connected(ENDPOINT, one.clock.now)
        _pass(one, 40)
        assert ("replay_failing" in _findings(one)) is is_up


def test_replays_that_break_off_or_are_garbled_are_told_apart() -> None:
    with fleet() as one:
        one.learn("w0", sources=(ENDPOINT,))
        one.brains.intake.on_connected(ENDPOINT, one.clock.now)
        _reply(one, _replayed(0))
        _pass(one, 6)
        while not one.brains.intake.is_replaying(ENDPOINT):
            _pass(one, 1)
        _reply(one, [b""], END)
        one.tick(1.0)
        evidence = _findings(one)[FindingKind.REPLAY_FAILING.value].evidence
        assert (evidence["failed_replays"], evidence["garbled_replays"]) == (2, 1)
        assert evidence["unanswered_replays"] == 0
