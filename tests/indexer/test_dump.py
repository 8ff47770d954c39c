"""An index dumped and loaded is the same index: for lookups, for its books, and for the events to come."""

import json
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.dump import rank_lines
from indexer.dump_format import FORMAT, DumpError, LoadSkip, write_line
from indexer.identity import ClaimSkip
from indexer.limits import IndexLimits
from indexer.load import IndexLoad
from indexer.trust import Trust
from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, KvEvent, Tier
from tests.indexer.dumped import dump, feed, full, load
from tests.indexer.small_fleet import SmallFleet, blocks, names, prompt, rank, worker_spec

W = rank("w")
SIZE = 2
SALTS = (None, "s", "t")
PATHS = st.integers(0, 5)
media = st.sampled_from(["GPU", "CPU", "DISK"])
salts = st.sampled_from(SALTS)


def hash_of(depth: int, salt: str | None) -> int | bytes:
    return 10 * depth + 1 if salt is None else f"{salt}{depth}".encode()


@st.composite
def stores(draw: st.DrawFn) -> BlockStored:
    """One or two blocks of the one chain of a namespace, with its tokens or without."""
    salt, first, count = draw(salts), draw(PATHS), draw(st.integers(1, 2))
    depths = range(first, first + count)
    tokens = [100 + t for depth in depths for t in (2 * depth, 2 * depth + 1)]
    extra = draw(st.sampled_from([None, None, None, [[7.5]] * count]))
    return BlockStored(
        [hash_of(depth, salt) for depth in depths],
        hash_of(first - 1, salt) if first else None,
        tokens if draw(st.integers(0, 5)) else [],
        SIZE,
        draw(media),
        cache_salt=salt,
        extra_keys=extra,
        group_idx=draw(st.sampled_from([None, None, 1])),
    )


removals = st.builds(
    lambda depth, salt, medium: BlockRemoved([hash_of(depth, salt)], medium), PATHS, salts, media
)
clears = st.builds(AllBlocksCleared, st.sampled_from([None, "GPU", "CPU"]))
sparse = st.builds(
    lambda depth: BlockStored([hash_of(depth, None)], None, [1, 2], 2, "GPU", group_idx=2, spec_kind="mamba"),
    PATHS,
)  # fmt: skip
events = st.lists(st.one_of(stores(), stores(), stores(), removals, clears, sparse), max_size=12)


def requests() -> list[tuple[int, ...]]:
    return [tuple(100 + t for t in range(2 * depth)) for depth in range(1, 8)]


def apply(fleet: SmallFleet, batch: Sequence[KvEvent]) -> None:
    fleet.index.apply(W, EventBatch(0.0, batch), fleet.now, 7)
    fleet.index.check()


def assert_same(one: SmallFleet, other: SmallFleet) -> None:
    for tokens in requests():
        for salt in SALTS:
            request = prompt(tokens, salt=salt)
            assert one.match("w", request) == other.match("w", request)
    mine, others = one.index.residency(W), other.index.residency(W)
    for tier in Tier:
        assert mine[tier] == others[tier] or set(mine[tier]) == set(others[tier])
    a, b = one.state("w"), other.state("w")
    for name in ("blocks", "observed", "unnamed", "orphans", "block_size", "trust"):
        assert getattr(a, name) == getattr(b, name), name
    assert one.index.stats().blocks == other.index.stats().blocks


def twin(fleet: SmallFleet) -> SmallFleet:
    other = SmallFleet("w", trust=fleet.trust("w"), limits=fleet.limits)
    other.now = fleet.now
    assert len(load(other, dump(fleet, W)).loaded) == 1
    other.index.check()
    return other


@given(events, events)
def test_a_loaded_index_is_equal_and_stays_so(before: list[KvEvent], after: list[KvEvent]) -> None:
    fleet = SmallFleet("w")
    apply(fleet, before)
    other = twin(fleet)
    assert_same(fleet, other)
    apply(fleet, after)
    apply(other, after)
    assert_same(fleet, other)


@given(events, st.lists(st.integers(1, 7), max_size=3))
def test_evidence_is_loaded_at_its_age(before: list[KvEvent], served: list[int]) -> None:
    fleet = SmallFleet("w", trust=Trust.JOINED)
    apply(fleet, before)
    for depth in served:
        fleet.now += 1.0
        fleet.index.observe(W, prompt([100 + t for t in range(2 * depth)]), fleet.now)
    other = twin(fleet)
    assert_same(fleet, other)
    for _ in range(3):
        for one in (fleet, other):
            one.wait(299.5)
        assert_same(fleet, other)


@given(events, events, st.integers(0, 12))
def test_events_that_are_there_in_part_may_come_again(
    before: list[KvEvent], batch: list[KvEvent], cut: int
) -> None:
    """A snapshot in the middle of a long batch has the number before it: the batch is applied again.

    Except where the rank speaks of extra keys for the first time in it: offload stores before that are doubted then.
    """
    batch = [event for event in batch if not getattr(event, "extra_keys", None)]
    fleet = SmallFleet("w")
    apply(fleet, before)
    apply(fleet, batch[:cut])
    other = twin(fleet)
    apply(fleet, batch[cut:])
    apply(other, batch)
    held, others = fleet.index.residency(W), other.index.residency(W)
    lasting = {e.block_hashes[0] for e in batch[:cut] if isinstance(e, BlockRemoved)}
    for tier in Tier:
        assert set(others[tier]) - lasting == set(held[tier]) - lasting


def test_ranks_and_their_marks() -> None:
    fleet = SmallFleet("a", "b", worker_spec("c", num_ranks=2))
    fleet.store("a", names(0, 3), blocks(0, 3))
    fleet.index.apply(rank("a"), EventBatch(0.0, []), fleet.now, 41)
    fleet.index.apply(rank("b"), EventBatch(0.0, []), fleet.now, 7)
    lines = dump(fleet, rank("a"), rank("b"), rank("c"))
    other = SmallFleet("a", "b", worker_spec("c", num_ranks=2))
    loading = load(other, lines)
    assert [(line.worker, line.seq, line.trust) for line in loading.loaded] == [
        ("a", 41, Trust.EXACT), ("b", 7, Trust.EXACT),
    ]  # fmt: skip
    assert loading.skipped == {LoadSkip.NOT_TRUSTED: 1}  # nothing was heard of c
    assert other.run("a", prompt(blocks(0, 3))) == (3, 0, 0)
    assert other.index.mark(rank("a")) == 41


def test_lines_are_short() -> None:
    fleet = full()
    assert max(map(len, dump(fleet, rank("a"), rank("b")))) < 40_000


def test_a_dump_that_is_cut_loads_whole_ranks_alone() -> None:
    lines = dump(full(), rank("a"), rank("b"))
    end_of_a = next(i for i, line in enumerate(lines) if b"rank_end" in line)
    for length in range(len(lines)):
        other = SmallFleet("a", "b")
        loading = IndexLoad(other.index, other.now)
        for line in lines[:length]:
            loading.feed(line)
        with pytest.raises(DumpError, match="before its end"):
            loading.finish()
        other.index.check()
        states = {s.rank.worker: sum(s.blocks.values()) for s in other.index.rank_states(1.0)}
        ends = [i for i, line in enumerate(lines[:length]) if b"rank_end" in line]
        assert states == {"a": 1_200 * (end_of_a in ends), "b": 1_200 * (len(ends) == 2)}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("header", {"format": FORMAT + 1}, "this version reads"),
        ("header", {"kind": "what"}, "line 1"),
        ("rank", {"trust": "blind"}, "trust"),
        ("rank", {"dp_rank": 512}, "dp_rank"),
        ("rank", {"dp_rank": "0"}, "dp_rank"),
        ("rank", {"more": 1}, "more"),
        ("rank", {"geometries": [[0, False, 1]]}, "geometries"),
        ("space", {"number": 77}, "no space"),
        ("space", {"block_size": 0}, "block_size"),
        ("group", {"kind": "names", "space": 0, "hashes": [], "keys": [], "index": None}, "index"),
        ("held", {"keys": [1]}, "1 keys for"),
        ("held", {"keys": [1 << 64]}, "keys"),
        ("held", {"keys": [-1]}, "keys"),
        ("held", {"hashes": ["xyz"]}, "hashes"),
        ("held", {"hashes": list(range(513))}, "hashes"),
        ("held", {"tier": "tape"}, "tier"),
        ("parked", {"tokens": "!"}, "base64"),
        ("parked", {"tokens": ""}, "tokens do not fit"),
        ("parked", {"num_known": 3}, "tokens do not fit"),
        ("parked", {"parent": names(5_000, 1)[0]}, "no parent of its own"),
        ("rank_end", {"held": 3}, "hashes are there, not 3"),
        ("end", {"ranks": 3}, "2 ranks are there"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_of_it_stays(
    kind: str, change: dict[str, object], message: str
) -> None:
    lines = dump(full(), rank("a"), rank("b"))
    at = next(i for i, line in enumerate(lines) if f'"kind":"{kind}"'.encode() in line)
    lines[at] = json.dumps({**orjson.loads(lines[at]), **change}).encode()
    other = SmallFleet("a", "b")
    loading = IndexLoad(other.index, other.now)
    with pytest.raises(DumpError, match=message) as failure:
        feed(loading, lines)
    assert str(failure.value).startswith("line ")
    other.index.check()
    if kind != "end":
        assert other.index.stats().held == 0
    else:
        assert len(loading.loaded) == 2


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"kind": "end"', b"7" * 50]
)
def test_lines_that_are_none(raw: bytes) -> None:
    lines = dump(full(), rank("a"))
    for at in (0, 1, 4):
        other = SmallFleet("a", "b")
        loading = IndexLoad(other.index, other.now)
        with pytest.raises(DumpError, match=f"line {at + 1}"):
            feed(loading, [*lines[:at], raw])
        assert other.index.stats().held == 0


@given(st.lists(st.integers(0, 40), max_size=40))
def test_lines_in_any_order_load_whole_ranks_or_fail(order: list[int]) -> None:
    lines = dump(full(), rank("a"), rank("b"))
    other = SmallFleet("a", "b")
    loading = IndexLoad(other.index, other.now)
    try:
        loading.feed(lines[0])
        for place in order:
            loading.feed(lines[place % len(lines)])
        loading.finish()
    except DumpError:
        pass
    other.index.check()
    held = {s.rank.worker: sum(s.blocks.values()) for s in other.index.rank_states(1.0)}
    whole = {line.worker for line in loading.loaded}
    assert {worker for worker, count in held.items() if count} <= whole


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (worker_spec("x"), LoadSkip.UNKNOWN_WORKER),
        (worker_spec("a", model="other"), LoadSkip.OTHER_WORKER),
        (worker_spec("a", url="http://elsewhere"), LoadSkip.OTHER_WORKER),
        (worker_spec("a", version="1.0"), None),
    ],
)
def test_ranks_of_other_workers_are_left_out(spec: object, reason: LoadSkip | None) -> None:
    lines = dump(full(), rank("a"))
    other = SmallFleet(spec)  # type: ignore[arg-type]
    loading = load(other, lines)
    assert loading.skipped == ({reason: 1} if reason else {})
    assert (other.index.stats().held > 0) is (reason is None)


def test_books_that_are_not_empty_stay_as_they_are() -> None:
    other = SmallFleet("a", "b")
    other.store("a", names(0, 2), blocks(900, 2))
    loading = load(other, dump(full(), rank("a"), rank("b")))
    assert loading.skipped == {LoadSkip.KNOWN_ALREADY: 1}
    assert other.run("a", prompt(blocks(900, 2))) == (2, 0, 0)


def test_a_rank_that_does_not_fit_the_bound_is_no_rank() -> None:
    other = SmallFleet("a", "b", limits=IndexLimits(claims=1_000))
    with pytest.raises(DumpError, match="more than 1000 claims"):
        load(other, dump(full(), rank("a")))
    other.index.check()
    assert other.index.stats().held == 0


def test_a_degraded_ranks_claims_are_doubtful_again() -> None:
    fleet = full()
    fleet.index.record_loss(rank("a"), fleet.now)
    fleet.index.set_trust(rank("a"), Trust.DEGRADED, fleet.now)
    other = SmallFleet("a", "b")
    load(other, dump(fleet, rank("a")))
    assert other.state("a").doubtful == 1_200
    other.wait(601.0)
    assert sum(other.state("a").blocks.values()) == 0


def test_a_snapshot_stays_as_it_was_while_events_go_on() -> None:
    fleet = full()
    snapshot = fleet.index.snapshot(rank("a"), fleet.now)
    before = dump(fleet, rank("a"))
    fleet.clear("a")
    fleet.store("a", names(0, 3), blocks(0, 3))
    assert snapshot is not None
    assert [write_line(line) for line in rank_lines(snapshot, [], fleet.now)] == before[1:-1]


def test_pieces_beyond_a_line_are_left_unnamed() -> None:
    fleet = SmallFleet("a", "b")
    tokens = list(range(1_100_000))
    fleet.store("a", names(0, 2), tokens, parent=b"unknown")
    fleet.index.apply(rank("a"), EventBatch(0.0, []), fleet.now, 9)
    other = SmallFleet("a", "b")
    load(other, dump(fleet, rank("a")))
    assert (other.state("a").orphans, other.state("a").unnamed) == (0, 2)
    assert ClaimSkip.ORPHAN_DROPPED not in other.state("a").skips


def test_evidence_for_what_is_announced_adds_nothing() -> None:
    lines = dump(full(), rank("a"))
    held = next(orjson.loads(line) for line in lines if b'"held"' in line and b'"keys"' in line)
    seen = {"kind": "observed", "space": held["space"], "keys": held["keys"], "age_s": 1.0}
    at = next(i for i, line in enumerate(lines) if b"rank_end" in line)
    other = SmallFleet("a", "b")
    load(other, [*lines[:at], orjson.dumps(seen), *lines[at:]])
    assert other.state("a").observed == 0
    late = orjson.dumps({**seen, "age_s": 2.0})
    with pytest.raises(DumpError, match="out of order"):
        load(SmallFleet("a", "b"), [*lines[:at], orjson.dumps(seen), late, *lines[at:]])
