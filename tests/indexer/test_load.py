"""Ranks that come, go and are asked of while a dump is loaded: each as a whole or not at all."""

import orjson
import pytest

from indexer.actions import ForgetReason
from indexer.dump_format import DumpError, LoadSkip
from indexer.load import IndexLoad
from indexer.trust import Trust
from protocol import EventBatch
from tests.indexer.dumped import dump, feed, full, load
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank

W = rank("w")


def test_a_rank_that_is_known_to_hold_nothing_stays_as_it_is() -> None:
    empty = SmallFleet("a")
    empty.index.apply(rank("a"), EventBatch(0.0, []), empty.now, 9)
    other = SmallFleet("a", "b")
    assert len(load(other, dump(empty, rank("a"))).loaded) == 1
    assert load(other, dump(full(), rank("a"))).skipped == {LoadSkip.KNOWN_ALREADY: 1}
    assert other.index.stats().held == 0


def test_a_rank_is_told_once() -> None:
    lines = dump(full(), rank("a"))
    for worker in ("a", "b"):  # loaded, and left out
        loading = IndexLoad(SmallFleet(worker).index, 100.0)
        with pytest.raises(DumpError, match="a second time"):
            feed(loading, [*lines[:-1], *lines[1:-1]])
        assert len(loading.loaded) == (worker == "a")


def test_evidence_is_no_obstacle_and_newer_than_what_is_loaded() -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    fleet.store("w", names(0, 3), blocks(0, 3))
    fleet.index.observe(W, prompt(blocks(5_000, 4)), fleet.now)
    fleet.index.apply(W, EventBatch(0.0, []), fleet.now, 9)
    fleet.now += 10
    lines = dump(fleet, W)
    other = SmallFleet("w", trust=Trust.JOINED)
    other.now = fleet.now
    loading = IndexLoad(other.index, other.now)
    for line in lines:
        other.now += 1
        other.index.observe(W, prompt(blocks(int(1_000 * other.now), 4)), other.now)
        other.index.observe(W, prompt(blocks(0, 2)), other.now)
        loading.feed(line)
        other.index.check()
    loading.finish()
    assert other.run("w", prompt(blocks(0, 3))) == (3, 0, 0)
    assert other.match("w", prompt(blocks(5_000, 4))).observed_blocks == 4
    other.now = fleet.now - 10 + other.limits.observed_ttl_s + 1
    other.index.tick(other.now)
    assert other.match("w", prompt(blocks(5_000, 4))).observed_blocks == 0


@pytest.mark.parametrize("at", range(2, 9))
@pytest.mark.parametrize("how", ["removed", "added again", "forgotten"])
def test_a_rank_that_goes_while_it_is_loaded_leaves_nothing(how: str, at: int) -> None:
    other = SmallFleet("a", "b")
    loading = IndexLoad(other.index, other.now)
    lines = dump(full(), rank("a"))
    feed(loading, lines[:at])
    if how == "forgotten":
        other.index.forget(rank("a"), ForgetReason.WORKER_REMOVED, other.now)
    else:
        other.index.remove_worker(rank("a").worker)
    if how == "added again":
        other.add("a")
    with pytest.raises(DumpError, match="removed or forgotten"):
        feed(loading, lines[at:])
    other.index.check()
    assert other.index.stats().held == 0
    other.add("c")
    assert other.run("c", prompt(blocks(0, 1_200))) == (0, 0, 0)


def test_a_line_that_is_wrong_leaves_no_space_behind() -> None:
    lines = [line for line in dump(full(), rank("a")) if b'"group"' not in line]
    names_line = {b'"kind":"held","tier":"gpu"': b'"kind":"names"', b',"is_unkeyable":false': b""}
    for held, other in names_line.items():
        lines = [line.replace(held, other) for line in lines]
    fleet = SmallFleet("a", "b")
    with pytest.raises(DumpError, match="no cache group"):
        load(fleet, lines)
    assert fleet.index.stats().key_spaces == 0


def test_blocks_of_no_size_are_no_blocks() -> None:
    lines = dump(full(), rank("a"))
    at = next(i for i, line in enumerate(lines) if b'"parked"' in line)
    empty = {**orjson.loads(lines[at]), "block_size": 0, "tokens": ""}
    lines[at] = orjson.dumps(empty)
    with pytest.raises(DumpError, match="tokens do not fit"):
        load(SmallFleet("a", "b"), lines)
