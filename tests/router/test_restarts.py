"""A worker that restarts in place as another version, or with another block size, and is heard before it says so."""

import pytest

from indexer.match import Prompt
from indexer.trust import Trust
from protocol import (
    BlockStored,
    EngineKind,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    WorkerId,
    encode_batch,
    live_frames,
    pack_tokens,
)
from tests.router.brains import TestFleet, fleet

W0 = WorkerId("w0")


def hear(one: TestFleet, spoken: EventSource, seq: int, process: int) -> None:
    """One batch of a process; its blocks are its own."""
    tokens = [1000 * process + 4 * seq + i for i in range(4)]
    parent = None if seq == 0 else 100 * process + seq - 1
    stored = BlockStored([100 * process + seq], parent, tokens, 4)
    frames = live_frames(LiveMessage(b"", seq, encode_batch(EventBatch(process, [stored]))))
    one.brains.intake.on_live(spoken, frames, one.clock.now)


def held(one: TestFleet, process: int) -> list[int]:
    """Blocks by rank of what a process announced."""
    prompt = Prompt(pack_tokens([1000 * process + i for i in range(13)]), "m", None, None)
    ranks = [state.rank for state in one.brains.index.rank_states(one.clock.now)]
    return [one_rank.matched_blocks for one_rank in one.brains.index.match(prompt, ranks, 0.0)]


CHANGED = [{"version": "0.5.23"}, {"block_size": 8}, {"version": "0.5.21", "block_size": 64}]


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("changes", CHANGED)
def test_a_process_that_was_heard_before_it_was_described_keeps_its_claims(
    changes: dict[str, object], num_ranks: int
) -> None:
    """It restarts in place with another version or block size, again and again; no replay socket is there."""
    sources = tuple(
        EventSource(Rank(W0, i), f"tcp://127.0.0.1:{5557 + i}") for i in range(num_ranks)
    )
    described_as = {"engine": EngineKind.SGLANG, "sources": sources, "num_ranks": num_ranks}
    known: dict[str, object] = {"version": "0.5.22", "block_size": 4}
    with fleet() as one:
        for process in range(1, 5):
            if process > 1:
                for spoken in sources:
                    one.brains.intake.on_disconnected(spoken, one.clock.now)
                    one.brains.intake.on_connected(spoken, one.clock.now)
                    for seq in range(3):
                        hear(one, spoken, seq, process)
            one.learn("w0", **described_as | (known | changes if process % 2 else known))
            if process == 1:
                for spoken in sources:
                    for seq in range(3):
                        hear(one, spoken, seq, process)
            assert held(one, process) == [3] * num_ranks
            assert held(one, process - 1) == [0] * num_ranks
            one.learn("w0", **described_as | (known | changes if process % 2 else known))
        assert one.brains.index.trust(Rank(W0), one.clock.now) is Trust.EXACT


@pytest.mark.parametrize("changes", CHANGED)
def test_a_rank_whose_restart_was_not_heard_starts_anew(changes: dict[str, object]) -> None:
    """One of two ranks has told of it: nothing says whose the claims of the other are."""
    sources = tuple(EventSource(Rank(W0, i), f"tcp://127.0.0.1:{5557 + i}") for i in range(2))
    described_as = {"engine": EngineKind.SGLANG, "sources": sources, "num_ranks": 2}
    known: dict[str, object] = {"version": "0.5.22", "block_size": 4}
    with fleet() as one:
        one.learn("w0", **described_as | known)
        for spoken in sources:
            for seq in range(3):
                hear(one, spoken, seq, 1)
        one.learn("w0", **described_as | known)
        hear(one, sources[0], 0, 2)
        one.learn("w0", **described_as | known | changes)
        assert held(one, 1) == held(one, 2) == [0, 0]
