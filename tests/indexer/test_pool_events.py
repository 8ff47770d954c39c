"""What storage pools say themselves: by the hashes that ranks publish, of media, restarts and losses."""

import msgpack

from indexer.actions import ForgetReason, LossCause
from indexer.backlog import Backlog
from indexer.identity import ClaimSkip
from indexer.intake import Intake
from indexer.limits import IndexLimits
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EventSource, Rank, pool_source
from tests.indexer.pooled_fleet import (
    HASHES,
    NAME,
    PROMPT,
    SPEAKS,
    TOKENS,
    PooledFleet,
    pool,
    pooled,
    user,
)
from tests.indexer.small_fleet import SIZE, prompt, worker_spec


def test_a_pool_names_blocks_by_the_hashes_that_ranks_publish() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES[:60]))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 60)
    assert fleet.source("b") is StorageSource.POOL_EVENTS
    assert fleet.run("a", prompt(PROMPT)) == (100, 0, 0)
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 60)
    fleet.tell(BlockRemoved(HASHES[10:], "cpu"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 10)


def test_hashes_may_be_heard_of_before_their_blocks() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.tell(pooled(HASHES))
    assert fleet.pool().unnamed == 100
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.store("a", HASHES, TOKENS)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    assert fleet.pool().unnamed == 0


def test_blocks_that_ranks_adopt_late_are_named_too() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES[50:], TOKENS[200:], parent=HASHES[49])
    fleet.tell(pooled(HASHES))
    fleet.store("a", HASHES[:50], TOKENS[:200])
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)


def test_a_block_on_two_media_of_the_pool_leaves_with_the_last() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES), pooled(HASHES, "disk"), BlockRemoved(HASHES, "cpu"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    fleet.tell(BlockRemoved(HASHES, "disk"))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_pool_may_tell_tokens_itself() -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS)
    fleet.tell(BlockStored(HASHES, None, TOKENS, SIZE))
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    fleet.tell(AllBlocksCleared())
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_events_of_another_model_are_counted_and_nothing_else() -> None:
    fleet = PooledFleet(user("a", tokenizer="/models/m"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES[:5], model="other"), BlockRemoved(HASHES[:5], "cpu", model="other"))
    assert fleet.pool().skips[ClaimSkip.OTHER_MODEL] == 10
    fleet.tell(pooled(HASHES[:5], model="/models/m"), pooled(HASHES[5:7], model="m"))
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 7)


def test_several_layouts_behind_one_name_need_events_that_name_their_model() -> None:
    fleet = PooledFleet(user("a"), user("b", pool(model="n"), model="n"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES[:50]), pooled(HASHES[:10], model="m"))
    assert {state.skips[ClaimSkip.OTHER_MODEL] for state in fleet.index.pool_states()} == {50, 60}
    fleet.clear("a")
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 10)


def test_a_restart_or_a_loss_of_the_pool_ends_what_it_said() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    source = Rank(pool_source(NAME))
    fleet.store("a", HASHES, TOKENS)
    fleet.index.set_trust(source, Trust.EXACT, fleet.now)
    fleet.tell(pooled(HASHES))
    assert fleet.pool().trust is Trust.EXACT
    fleet.index.record_loss(source, fleet.now, LossCause.NO_REPLAY)
    fleet.tell(pooled(HASHES[:30]))
    fleet.wait(601.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 30)
    fleet.index.forget(source, ForgetReason.RESTARTED, fleet.now)
    fleet.index.check()
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_pool_is_shrunk_and_cleared_by_medium() -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS)
    source = Rank(pool_source(NAME))
    fleet.tell(BlockStored(HASHES, None, TOKENS, SIZE, "disk"))
    assert not fleet.index.shrink(source, "disk", 40, fleet.now)
    assert fleet.index.shrink(source, "disk", 60, fleet.now)
    assert fleet.index.shrink(source, "nowhere", 1, fleet.now)
    fleet.tell(AllBlocksCleared("disk"))
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 0)


def test_a_big_clear_moves_the_pool_to_another_slot() -> None:
    limits = IndexLimits(cleared_at_once=10)
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS, limits=limits)
    fleet.store("a", HASHES, TOKENS)
    fleet.tell(pooled(HASHES))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    fleet.tell(AllBlocksCleared(), pooled(HASHES[:3]))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 3)
    fleet.wait(1.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 3)


def test_pools_count_towards_the_bound_of_all_claims() -> None:
    fleet = PooledFleet(user("a"), rules=SPEAKS, limits=IndexLimits(claims=64, age_grain=8))
    fleet.tell(BlockStored(HASHES, None, TOKENS, SIZE, "disk"))
    assert fleet.pool().skips[ClaimSkip.EVICTED] >= 36
    assert fleet.pool().blocks[StorageSource.POOL_EVENTS] <= 64


def test_events_of_a_pool_nobody_uses_are_counted() -> None:
    fleet = PooledFleet(worker_spec("a"), rules=SPEAKS)
    fleet.tell(pooled(HASHES))
    assert fleet.index.stats().skips[ClaimSkip.UNKNOWN_WORKER] == 1


def mooncake(seq: int, kind: str, *hashes: int) -> list[bytes]:
    """A message of Mooncake's master."""
    block = {"event_type": kind, "medium": "cpu", "model_name": "m", "block_size": SIZE}
    events = [block | {"seq_hashes": [one], "token_ids": None, "tp_rank": 0} for one in hashes]
    return [b"", seq.to_bytes(8, "big"), msgpack.packb([1_790_000_000_000, events, 0])]


def test_pools_are_heard_through_the_streams_that_ranks_are() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    known = [one for one in HASHES if isinstance(one, int)]
    source = EventSource(Rank(pool_source(NAME)), "tcp://master:5557")
    intake = Intake(Backlog(fleet.index))
    intake.add_source(source, fleet.now)
    intake.on_connected(source, fleet.now)
    intake.on_live(source, mooncake(0, "stored", *known), fleet.now)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)
    intake.on_live(source, mooncake(1, "removed", *known[40:]), fleet.now)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 40)
    intake.on_live(source, mooncake(3, "stored", *known[:7]), fleet.now)  # 2 is lost, for good
    assert fleet.pool().trust is Trust.DEGRADED
    fleet.wait(601.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 7)
    intake.on_live(source, mooncake(0, "stored", *known[:2]), fleet.now)  # another process
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 2)
    intake.remove_source(source, fleet.now)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    fleet.index.check()
