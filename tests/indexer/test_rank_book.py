"""What the index makes of one rank: sizes it is looked up at, and trust."""

import pytest

from indexer.actions import ForgetReason
from indexer.trust import Trust
from protocol import EngineKind, Tier
from tests.indexer.served_prompt import REQUEST, TOKENS, counts, store
from tests.indexer.small_fleet import SmallFleet, names, prompt, rank, worker_spec

# Block sizes and versions


def test_each_rank_is_looked_up_at_the_size_its_events_use() -> None:
    fleet = SmallFleet(worker_spec("a", block_size=16), worker_spec("b", block_size=16))
    tokens = list(range(256))
    request = prompt(tokens)
    fleet.store("a", names(0, 16), tokens)
    assert fleet.match("a", request).matched_blocks == 16
    fleet.index.forget(rank("a"), ForgetReason.RESTARTED, fleet.now)
    assert fleet.match("a", request).block_size == 16
    fleet.store("a", names(0, 4), tokens)
    fleet.store("b", names(0, 8), tokens)
    for worker, size, count in (("a", 64, 4), ("b", 32, 8)):
        match = fleet.match(worker, request)
        assert (match.block_size, match.matched_blocks, match.matched_tokens) == (size, count, 256)
    evidence = fleet.findings()["block_size_disagrees"]
    assert (evidence["num_ranks"], evidence["advertised_block_size"]) == (2, 16)


def test_the_longest_match_wins_where_one_rank_uses_two_sizes() -> None:
    fleet = SmallFleet("w")
    tokens = list(range(64))
    fleet.store("w", names(0, 4), tokens[:16])
    fleet.store("w", names(50, 3), tokens[:48])
    assert fleet.match("w", prompt(tokens)).matched_tokens == 48
    fleet.remove("w", names(50, 3))
    assert fleet.match("w", prompt(tokens)).matched_tokens == 16


@pytest.mark.parametrize(
    ("version", "is_believed"),
    [
        ("0.4.7", False), ("0.5.14", False), ("0.5.14.post1", False), ("0.5", False),
        ("0.5.15", True), ("v0.5.23", True), ("0.6.0", True), ("1.0", True), (None, True), ("main", True),
    ],
)  # fmt: skip
def test_old_sglang_is_not_believed(version: str | None, is_believed: bool) -> None:
    fleet = SmallFleet(worker_spec("w", engine=EngineKind.SGLANG, version=version))
    fleet.apply("w", store(0, 8))
    assert (counts(fleet)[0] == 8) is is_believed
    assert fleet.trust("w") is (Trust.EXACT if is_believed else Trust.NONE)
    fleet.serve("w", REQUEST)
    assert counts(fleet)[0] == 8
    assert fleet.state("w").blocks[Tier.GPU] == (8 if is_believed else 0)


# Trust


@pytest.mark.parametrize("trust", list(Trust))
def test_the_streams_word_stands_where_nothing_speaks_against_it(trust: Trust) -> None:
    fleet = SmallFleet("w", trust=trust)
    expected = Trust.JOINED if trust is Trust.DEGRADED else trust  # no claim is older than the loss
    assert fleet.trust("w") is expected
    assert fleet.match("w", REQUEST).trust is expected


def test_a_rank_that_owes_events_and_is_silent_is_stale() -> None:
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 2))
    fleet.wait(1_000.0)
    assert fleet.trust("w") is Trust.EXACT
    fleet.serve("w", REQUEST, cached_tokens=8)
    fleet.wait(61.0)
    assert fleet.trust("w") is Trust.STALE
    fleet.apply("w", store(2, 8))
    assert fleet.trust("w") is Trust.EXACT


def test_a_rank_out_of_reach_is_not_called_exact() -> None:
    """Nobody has to send it requests for that: what it does for others is missed, too."""
    fleet = SmallFleet("w")
    fleet.apply("w", store(0, 8))
    for is_connected, trust in (
        (False, Trust.EXACT), (False, Trust.EXACT), (False, Trust.STALE),
        (None, Trust.EXACT), (False, Trust.EXACT), (False, Trust.EXACT), (False, Trust.STALE), (True, Trust.EXACT),
    ):  # fmt: skip
        fleet.index.set_connected(rank("w"), fleet.now, is_connected=is_connected)
        assert (fleet.trust("w"), fleet.match("w", REQUEST).trust) == (trust, trust)
        fleet.wait(15.0)


@pytest.mark.parametrize(
    ("request_tokens", "cached_tokens"),
    [([*TOKENS, 1], 32), (TOKENS, 28), ([*TOKENS, 1], 28), ([1, 2, 3], 0)],
)
def test_a_cached_prompt_owes_no_event(request_tokens: list[int], cached_tokens: int) -> None:
    """Whole, all but the last token, one block less with a draft model; or shorter than a block."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.apply("w", store(0, 2))
    fleet.wait(10.0)
    fleet.serve("w", prompt(request_tokens), cached_tokens)
    fleet.wait(100.0)
    assert fleet.trust("w") is Trust.JOINED
