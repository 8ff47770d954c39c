"""Every kind of finding from its cause to its mending: it names what is wrong, on which rank, and what to change."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from indexer.actions import ForgetReason, LossCause
from indexer.detectors import DETECTORS
from indexer.findings import FindingKind
from indexer.stream_status import ReplayTrouble
from indexer.trust import Trust
from protocol import BlockRemoved, BlockStored, EventBatch, EventSource, Rank
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank, worker_spec

W = rank("w")
OTHER = Rank(W.worker, 1)
A = names(0, 8)
TOKENS = blocks(0, 8)
STORE = BlockStored(A, None, TOKENS, SIZE, "GPU")

Step = Callable[[SmallFleet], None]


def stores(i: int) -> BlockStored:
    return BlockStored(names(100 * i, 8), None, blocks(1_000 * i, 8), SIZE, "GPU")


def ask(fleet: SmallFleet, i: int, cached: int = 0, *events: BlockStored) -> None:
    fleet.serve("w", prompt([*blocks(1_000 * i, 8), 1]), SIZE * cached, events)


def remove_from_host(fleet: SmallFleet) -> None:
    fleet.apply("w", BlockRemoved(A[:2], "CPU_PINNED"))


def serve_in_silence(fleet: SmallFleet) -> None:
    for i in range(1, 4):
        ask(fleet, i)
    fleet.wait(61.0)


def speak(fleet: SmallFleet) -> None:
    fleet.apply("w", STORE)


def lose(cause: LossCause) -> Step:
    return lambda fleet: fleet.index.record_loss(W, fleet.now, cause)


def lack_replay(fleet: SmallFleet) -> None:
    source = EventSource(W, "tcp://w:5557")
    fleet.index.add_worker(worker_spec("w", sources=(source,)), fleet.now)
    fleet.index.set_trust(W, Trust.EXACT, fleet.now)


def offer_replay(fleet: SmallFleet) -> None:
    fleet.index.add_worker(worker_spec("w"), fleet.now)


def fail_replays(fleet: SmallFleet) -> None:
    trouble = ReplayTrouble(3, 2, 1, fleet.now)
    fleet.index.set_replay_trouble(W, trouble)


def answer_replays(fleet: SmallFleet) -> None:
    fleet.index.set_replay_trouble(W, None)


def store_other_tokens(fleet: SmallFleet) -> None:
    for i in range(1, 5):
        ask(fleet, i, 0, replace(stores(i), token_ids=blocks(90_000 + 100 * i, 8)))
    fleet.wait(11.0)


def store_these_tokens(fleet: SmallFleet) -> None:
    ask(fleet, 9, 0, stores(9))


def use_another_size(fleet: SmallFleet) -> None:
    fleet.apply("w", replace(STORE, block_hashes=A[:4], block_size=2 * SIZE))


def disconnect(fleet: SmallFleet) -> None:
    fleet.index.set_connected(W, fleet.now, is_connected=False)
    fleet.wait(31.0)


def connect(fleet: SmallFleet) -> None:
    fleet.index.set_connected(W, fleet.now, is_connected=True)


def reuse_half(fleet: SmallFleet) -> None:
    for i in range(1, 4):
        fleet.apply("w", stores(i))
        ask(fleet, i, 3)
    fleet.wait(3.0)


def reuse_nothing(fleet: SmallFleet) -> None:
    for i in range(1, 4):
        fleet.apply("w", stores(i))
    for i in range(1, 4):
        ask(fleet, i, 0, stores(i))


def restart(fleet: SmallFleet) -> None:
    fleet.index.forget(W, ForgetReason.RESTARTED, fleet.now)


def clear(fleet: SmallFleet) -> None:
    fleet.clear("w")


def rebuild(fleet: SmallFleet) -> None:
    fleet.index.forget(W, ForgetReason.REBUILT, fleet.now)
    fleet.apply("w", STORE)


def hold_on(fleet: SmallFleet) -> None:
    """Ten minutes without the cause, in which the rank serves and tells of it."""
    for i in range(50, 64):
        fleet.wait(45.0)
        ask(fleet, i, 0, stores(i))


def speak_as_another_rank(fleet: SmallFleet) -> None:
    for _ in range(3):
        fleet.index.apply(OTHER, EventBatch(0.0, [STORE]), fleet.now)


def learn_its_rank(fleet: SmallFleet) -> None:
    sources = tuple(EventSource(one, "tcp://w:5557", "tcp://w:6557") for one in (W, OTHER))
    fleet.index.add_worker(worker_spec("w", num_ranks=2, sources=sources), fleet.now)


def be_without_it(fleet: SmallFleet) -> None:
    fleet.wait(601.0)


def leave(fleet: SmallFleet) -> None:
    fleet.index.remove_worker(W.worker)


LIVES: list[tuple[FindingKind, Step, Step]] = [
    (FindingKind.HOST_STORES_UNANNOUNCED, remove_from_host, restart),
    (FindingKind.HOST_STORES_UNANNOUNCED, remove_from_host, hold_on),
    (FindingKind.EVENTS_MISSING, serve_in_silence, speak),
    (FindingKind.EVENTS_MISSING, serve_in_silence, restart),
    (FindingKind.RANK_UNREACHABLE, disconnect, connect),
    (FindingKind.RANK_UNKNOWN, speak_as_another_rank, learn_its_rank),
    (FindingKind.RANK_UNKNOWN, speak_as_another_rank, be_without_it),
    (FindingKind.REPLAY_OFF, lack_replay, offer_replay),
    (FindingKind.REPLAY_FAILING, fail_replays, answer_replays),
    *(
        (kind, lose(cause), mend)
        for kind, cause in (
            (FindingKind.LOSS_UNREPAIRED, LossCause.NO_REPLAY),
            (FindingKind.LOSS_UNREPAIRED, LossCause.UNANSWERED),
            (FindingKind.LOSS_UNREPAIRED, LossCause.TRUNCATED),
            (FindingKind.EVENTS_UNREADABLE, LossCause.UNREADABLE),
        )
        for mend in (rebuild, restart, clear, hold_on)
    ),
    (FindingKind.PARITY_BROKEN, store_other_tokens, store_these_tokens),
    (FindingKind.PARITY_BROKEN, store_other_tokens, restart),
    (FindingKind.BLOCK_SIZE_DISAGREES, use_another_size, restart),
    (FindingKind.CACHED_TOKENS_CONTRADICT, reuse_half, hold_on),
    (FindingKind.CACHED_TOKENS_CONTRADICT, reuse_half, clear),
    (FindingKind.CLEARS_MISSING, reuse_nothing, hold_on),
    (FindingKind.CLEARS_MISSING, reuse_nothing, clear),
    (FindingKind.CLEARS_MISSING, reuse_nothing, restart),
]


def test_every_kind_that_is_looked_for_here_has_a_life() -> None:
    assert {kind for kind, _, _ in LIVES} == {one.kind for one in DETECTORS}


@pytest.mark.parametrize(("kind", "cause", "mend"), LIVES)
def test_a_finding_comes_with_its_cause_and_goes_with_it(
    kind: FindingKind, cause: Step, mend: Step
) -> None:
    fleet = SmallFleet("v", "w")
    cause(fleet)
    (finding,) = fleet.index.findings(fleet.now)
    where = OTHER if kind is FindingKind.RANK_UNKNOWN else W
    assert (finding.kind, finding.ranks) == (kind, (where,))
    assert len(finding.evidence) >= 2
    assert finding.evidence["num_ranks"] == 1
    assert finding.advice.endswith(".")
    mend(fleet)
    assert fleet.findings() == {}


@pytest.mark.parametrize(("kind", "cause", "mend"), LIVES)
def test_the_findings_of_a_worker_leave_with_it(kind: FindingKind, cause: Step, mend: Step) -> None:
    del kind, mend
    fleet = SmallFleet("v", "w")
    cause(fleet)
    leave(fleet)
    assert fleet.findings() == {}
