"""Storage pools in dumps: what their own events have told, and what is inferred."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson
import pytest

from indexer.dump import pool_lines
from indexer.dump_format import DumpError, EndLine, HeaderLine, LoadSkip, PoolLine, write_line
from indexer.load import IndexLoad
from indexer.storage_rules import StorageRules
from indexer.storage_source import StorageSource
from indexer.trust import Trust
from protocol import AllBlocksCleared, EventBatch, Rank, pool_key, pool_source
from tests.indexer.dumped import feed
from tests.indexer.pooled_fleet import (
    HASHES,
    INFERS,
    NAME,
    PROMPT,
    SPEAKS,
    TOKENS,
    PooledFleet,
    pool,
    pooled,
    user,
)
from tests.indexer.small_fleet import SIZE, prompt

SOURCE = Rank(pool_source(NAME))
BOTH = replace(SPEAKS, infers=True, inferred_ttl_s=60.0)


def knowing(trust: Trust = Trust.JOINED) -> PooledFleet:
    """What the pool's events told up to batch 7: sixty blocks, and two that nobody can name."""
    fleet = PooledFleet(user("a"), user("b"), rules=SPEAKS)
    fleet.store("a", HASHES, TOKENS)
    fleet.index.set_trust(SOURCE, trust, fleet.now)
    told = [pooled(HASHES[:40]), pooled(HASHES[40:60], "disk"), pooled([901, 902])]
    fleet.index.apply(SOURCE, EventBatch(0.0, told), fleet.now, 7)
    return fleet


def inferring() -> PooledFleet:
    """Copies that are inferred, and no longer in host memory."""
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store("a", HASHES, TOKENS, medium="CPU_PINNED")
    fleet.remove("a", HASHES, "CPU_PINNED")
    return fleet


def dump(fleet: PooledFleet) -> list[bytes]:
    pools = fleet.index.pools
    told = [one for key in pools.dump_keys() for one in pools.snapshots(key)]
    lines = [line for one in told for line in pool_lines(one, [(7, 1)], fleet.now)]
    return [write_line(one) for one in (HeaderLine(), *lines, EndLine(ranks=0, pools=len(told)))]


def load(
    fleet: PooledFleet,
    lines: Sequence[bytes],
    is_wanted: Callable[[object], bool] = lambda _: True,
) -> IndexLoad:
    loading = IndexLoad(fleet.index, fleet.now, is_wanted)
    for line in lines:
        loading.feed(line)
        fleet.index.check()
    loading.finish()
    return loading


def heir(rules: StorageRules = SPEAKS) -> PooledFleet:
    """Knows the workers, and the hashes that they publish; of the pool it has heard nothing."""
    fleet = PooledFleet(user("a"), user("b"), rules=rules)
    fleet.store("a", HASHES, TOKENS)
    return fleet


def test_what_a_pools_events_have_told_is_taken_over() -> None:
    sibling, fleet = knowing(), heir()
    loading = load(fleet, dump(sibling))
    assert [(one.pool, one.seq, one.digests) for one in loading.pools] == [(pool(), 7, [(7, 1)])]
    assert fleet.pool().blocks == sibling.pool().blocks
    assert fleet.pool().unnamed == 2
    assert fleet.run("b", prompt(PROMPT)) == sibling.run("b", prompt(PROMPT)) == (0, 0, 60)
    assert fleet.source("b") is StorageSource.POOL_EVENTS
    assert fleet.index.pools.is_restored(SOURCE.worker, 7, {pool()})
    fleet.index.set_trust(SOURCE, Trust.JOINED, fleet.now)  # says the stream that goes on
    again = heir()
    load(again, dump(fleet))
    again.index.set_trust(SOURCE, Trust.JOINED, fleet.now)
    assert dump(again) == dump(fleet)


def test_events_go_on_behind_the_mark() -> None:
    fleet = heir()
    load(fleet, dump(knowing()))
    fleet.index.apply(SOURCE, EventBatch(0.0, [pooled(HASHES[60:70])]), fleet.now, 8)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 70)
    fleet.tell(AllBlocksCleared())
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_hash_that_the_teller_could_not_name_may_have_a_name_here() -> None:
    sibling = PooledFleet(user("a"), rules=SPEAKS)
    sibling.index.set_trust(SOURCE, Trust.JOINED, 0.0)
    sibling.index.apply(SOURCE, EventBatch(0.0, [pooled(HASHES)]), 0.0, 7)
    assert sibling.pool().unnamed == 100
    fleet = heir()
    load(fleet, dump(sibling))
    assert fleet.pool().unnamed == 0
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 100)


def test_inferred_copies_are_taken_over_with_their_age() -> None:
    sibling = inferring()
    sibling.wait(20.0)
    fleet = PooledFleet(user("a"), user("b"), rules=INFERS)
    fleet.store(
        "b", HASHES[:10], TOKENS[: 10 * SIZE], medium="CPU_PINNED"
    )  # known already, and new
    loading = load(fleet, dump(sibling))
    assert loading.pools == []
    assert fleet.run("a", prompt(PROMPT)) == (0, 0, 100)
    fleet.wait(41.0)
    assert fleet.pool().blocks[StorageSource.INFERRED] == 10
    fleet.wait(20.0)
    assert fleet.pool().blocks[StorageSource.INFERRED] == 0


def test_whoever_does_not_infer_takes_no_inferred_copy() -> None:
    fleet = PooledFleet(user("a"), user("b"), rules=StorageRules())
    load(fleet, dump(inferring()))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda fleet: fleet.index.apply(SOURCE, EventBatch(0.0, []), fleet.now, 0),
        lambda fleet: fleet.tell(pooled(HASHES[:1])),
    ],
    ids=["a batch", "a block"],
)
def test_what_was_heard_here_goes_before(prepare: Callable[[PooledFleet], None]) -> None:
    fleet = heir()
    prepare(fleet)
    before = fleet.pool()
    assert load(fleet, dump(knowing())).pools == []
    assert fleet.pool() == before


@pytest.mark.parametrize("trust", [Trust.NONE, Trust.REBUILDING, Trust.STALE])
def test_what_the_teller_does_not_believe_is_not_loaded(trust: Trust) -> None:
    fleet = heir()
    assert load(fleet, dump(knowing(trust))).pools == []
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_what_was_doubtful_there_is_doubtful_here() -> None:
    fleet = heir()
    load(fleet, dump(knowing(Trust.DEGRADED)))
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 60)
    fleet.wait(fleet.limits.doubt_ttl_s + 1.0)
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)


def test_a_pool_that_is_not_wanted_or_not_known_is_left_out() -> None:
    fleet = heir()
    assert load(fleet, dump(knowing()), lambda _: False).pools == []
    assert fleet.run("b", prompt(PROMPT)) == (0, 0, 0)
    stranger = PooledFleet(user("a", pool("other")), rules=SPEAKS)
    loading = load(stranger, dump(knowing()))
    assert loading.skipped == {LoadSkip.UNKNOWN_POOL: 1}


@pytest.mark.parametrize("num_lines", range(1, 8))
def test_a_pool_that_is_cut_short_is_no_pool(num_lines: int) -> None:
    fleet = heir()
    lines = dump(knowing())
    loading = IndexLoad(fleet.index, fleet.now)
    feed(loading, lines[:num_lines])
    with pytest.raises(DumpError, match="before its end"):
        loading.finish()
    fleet.index.check()
    is_whole = any(b'"pool_end"' in line for line in lines[:num_lines])
    assert fleet.run("b", prompt(PROMPT)) == ((0, 0, 60) if is_whole else (0, 0, 0))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("pool_end", {"held": 3}, "hashes are there, not 3"),
        ("pool_end", {"kind": "rank_end"}, "rank_end outside a rank"),
        ("end", {"pools": 2}, "1 pools are there, not 2"),
        ("end", {"ranks": 1}, "0 ranks are there, not 1"),
        ("held", {"space": 77}, "no space 77"),
        ("pool", {"model": 3}, "line 2: pool.model"),
        ("pool", {"seq": -1}, "line 2: pool.seq"),
        ("header", {"format": 3}, "format 3; this version reads up to 2"),
    ],
)
def test_what_is_wrong_is_named(kind: str, change: dict[str, object], message: str) -> None:
    lines = dump(knowing())
    at = next(i for i, line in enumerate(lines) if orjson.loads(line)["kind"] == kind)
    lines[at] = orjson.dumps({**orjson.loads(lines[at]), **change})
    fleet = heir()
    with pytest.raises(DumpError, match=message):
        load(fleet, lines)
    fleet.index.check()


def test_a_pool_that_is_told_twice_or_inside_another_is_refused() -> None:
    header, first, *rest, end = dump(knowing())
    for lines, message in (
        ([header, first, *rest, first, *rest, end], "told a second time"),
        ([header, first, first], "begins before the last one has ended"),
    ):
        with pytest.raises(DumpError, match=message):
            load(heir(), lines)


def test_a_pool_that_is_left_or_forgotten_meanwhile_is_not_filled_further() -> None:
    for leave in (
        lambda fleet: [fleet.index.remove_worker(user(name).worker) for name in "ab"],
        lambda fleet: fleet.index.pools.forget(SOURCE.worker, fleet.now),
    ):
        fleet = heir()
        lines = dump(knowing())
        loading = IndexLoad(fleet.index, fleet.now)
        feed(loading, lines[:4])
        leave(fleet)
        with pytest.raises(DumpError, match="left or forgotten"):
            feed(loading, lines[4:])
        fleet.index.check()


def test_pools_that_publish_together_are_told_together() -> None:
    other = pool(model="n")
    fleet = PooledFleet(user("a"), user("b", other, model="n"), rules=SPEAKS)
    (key,) = fleet.index.pools.dump_keys()
    assert key == pool_key(pool()) == pool_key(other) == SOURCE.worker
    assert {one.pool for one in fleet.index.pools.snapshots(key)} == {pool(), other}
    unnamed = pool(None)
    assert pool_key(unnamed) == f"pool/{unnamed.label}"


def test_format_1_has_no_pools_and_is_read() -> None:
    fleet = heir()
    lines = [b'{"kind":"header","format":1}', b'{"kind":"end","ranks":0}']
    assert load(fleet, lines).pools == []


def test_a_line_is_a_pool() -> None:
    (raw,) = [one for one in dump(knowing()) if b'"kind":"pool"' in one]
    line = PoolLine.model_validate_json(raw)
    assert (line.pool, line.seq, line.trust) == (pool(), 7, Trust.JOINED)
