"""Whatever a publisher sends, or a dump holds: claims or a counted rejection, and a sound index after it."""

import json
from typing import Any

import msgpack
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from indexer import Backlog, FleetIndex, Intake, Trust
from indexer.dump_format import DumpError
from indexer.identity import ClaimSkip
from indexer.load import IndexLoad
from protocol import (
    EngineKind,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    WorkerSpec,
    live_frames,
    replay_frames,
)
from protocol.events import SkipReason
from tests.indexer.dumped import dump
from tests.indexer.small_fleet import SIZE, SmallFleet, blocks, names, prompt, rank
from tests.protocol.test_fuzz import FRAMES, GOLDEN, POOL_EVENTS, VALUES, flipped

THOROUGH = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RANK = Rank(WorkerId("w"))
SOURCE = EventSource(RANK, "tcp://w:1", "tcp://w:2")
SMALL = st.integers(0, 6)
HASHES = st.lists(SMALL | st.just(-1) | st.binary(max_size=2), max_size=4)
PLAIN_MEDIA = st.sampled_from(["GPU", "GPU", "CPU", "DISK"]).map(lambda medium: {"medium": medium})
REST_OF_STORES = st.fixed_dictionaries(
    {},
    optional={
        "medium": st.sampled_from(["GPU", "cpu", "CPU", "DISK", "MOON", None]),
        "lora_id": SMALL,
        "lora_name": st.sampled_from(["ad", "", None]),
        "cache_salt": st.sampled_from(["s", ""]),
        "extra_keys": st.lists(st.none() | st.lists(VALUES, max_size=3), max_size=4),
        "group_idx": st.integers(-2, 20),
        "kv_cache_spec_kind": st.sampled_from(["full_attention", "sliding_window", "mla", "?"]),
        "kv_cache_spec_sliding_window": SMALL,
        "locality": st.sampled_from(["LOCAL", "remote"]),
    },
)


def store(
    hashes: list[Any], parent: int | None, tokens: list[Any], size: int, rest: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
        "block_size": size, **rest,
    }  # fmt: skip


@st.composite
def coherent_stores(draw: st.DrawFn) -> dict[str, Any]:
    """A chain as engines announce it, here and there with something odd beside it."""
    size, first = draw(st.sampled_from([1, 2, 2, 2])), draw(SMALL)
    hashes = draw(st.lists(SMALL, min_size=1, max_size=3))
    run = [first + i for i in range(len(hashes) * size + 1)]
    pairs = [[run[i], run[i + 1]] for i in range(len(run) - 1)]
    tokens: list[Any] = draw(
        st.sampled_from([run[:-1], run[:-1], pairs, [*pairs[:-1], [9, 9]], []])
    )
    rest = draw(PLAIN_MEDIA | PLAIN_MEDIA | REST_OF_STORES)
    fields = store(hashes, draw(st.none() | SMALL), tokens, size, rest)
    lost = draw(st.none() | st.none() | st.sampled_from([*fields]))
    return {name: value for name, value in fields.items() if name != lost}


ODD_EVENTS = st.one_of(
    coherent_stores(),
    coherent_stores(),
    coherent_stores(),
    st.builds(
        store,
        HASHES,
        st.none() | SMALL,
        st.lists(SMALL | st.just(1 << 40), max_size=8) | st.lists(st.lists(SMALL, max_size=3), max_size=4),
        st.integers(0, 4),
        REST_OF_STORES,
    ),
    st.builds(
        lambda hashes, medium: {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium},
        HASHES,
        st.sampled_from(["GPU", "CPU", None]),
    ),
    st.builds(
        lambda medium: {"type": "AllBlocksCleared", "medium": medium},
        st.sampled_from([None, "GPU", "CPU", "MOON"]),
    ),
    POOL_EVENTS,
    VALUES,
)  # fmt: skip
BATCHES = st.lists(st.lists(ODD_EVENTS, max_size=5), max_size=8)


class Ear:
    """One publisher is listened to as the router does it, in parts of one block."""

    def __init__(self) -> None:
        self.index = FleetIndex()
        spec = WorkerSpec(RANK.worker, "http://w", "m", EngineKind.VLLM, sources=(SOURCE,))
        self.index.add_worker(spec, 0.0)
        self._backlog = Backlog(self.index, 1)
        self.intake = Intake(self._backlog)
        self.intake.add_source(SOURCE, 0.0)
        self.intake.on_connected(SOURCE, 0.0)

    def live(self, frames: list[bytes]) -> None:
        self.intake.on_live(SOURCE, frames, 0.0)
        self._after()

    def reply(self, frames: list[bytes]) -> None:
        self.intake.on_replay(SOURCE, frames, 0.0)
        self._after()

    def _after(self) -> None:
        while self._backlog.is_behind(RANK.worker):
            self._backlog.work(RANK.worker, 0.0)
        self.intake.check()
        self._backlog.check()

    def shows(self) -> set[str]:
        """What there is of every kind, and what was skipped for which reasons."""
        (state,) = self.index.rank_states(0.0)
        status = self.intake.status(RANK)
        assert status is not None
        counts = {"unnamed": state.unnamed, "parked": state.orphans}
        counts |= {f"on {tier.name}": count for tier, count in state.blocks.items()}
        counts |= {f"duplicate on {tier.name}": count for tier, count in state.duplicates.items()}
        counts |= {f"unknown on {tier.name}": n for tier, n in state.unknown_removals.items()}
        counts |= {f"skipped: {reason}": count for reason, count in state.skips.items()}
        counts |= {f"not read: {reason}": n for reason, n in status.counters.skipped.items()}
        return {str(state.trust), *(name for name, count in counts.items() if count)}

    def num_accounted(self) -> int:
        """Messages of the rank's stream, however they were taken."""
        status = self.intake.status(RANK)
        assert status is not None
        counters = status.counters
        return counters.batches + counters.unreadable + counters.duplicates


def hear(batches: list[list[Any]]) -> set[str]:
    """Every batch can be read as one, and none is passed over; says what came of them."""
    ear, reached = Ear(), set[str]()
    ear.reply(replay_frames(b"", ReplayEnd()))
    for seq, events in enumerate(batches):
        payload = msgpack.packb([float(seq), events, 0])
        ear.live(live_frames(LiveMessage(b"", seq, payload)))
        ear.index.check()
        reached |= ear.shows()
    assert ear.num_accounted() == len(batches)
    ear.index.tick(1.0)
    ear.index.findings(1.0)
    return reached


@THOROUGH
@given(BATCHES)
def test_odd_events(batches: list[list[Any]]) -> None:
    hear(batches)


EVERYTHING = {
    "on GPU", "on HOST", "on STORAGE", "unnamed", "parked", "duplicate on GPU", "unknown on GPU",
    Trust.EXACT, Trust.DEGRADED,
    *(f"not read: {reason}" for reason in set(SkipReason) - {SkipReason.TOO_LONG, SkipReason.NOT_A_BLOCK}),
    *(
        f"skipped: {reason}"
        for reason in (
            ClaimSkip.UNKNOWN_MEDIUM, ClaimSkip.REMOTE, ClaimSkip.SPARSE_GROUP,
            ClaimSkip.UNKNOWN_GROUP_KIND, ClaimSkip.TOKEN_COUNT, ClaimSkip.UNKNOWN_IDENTITY,
            ClaimSkip.BLOCK_SIZE_MIXED, ClaimSkip.AFTER_UNIDENTIFIED, ClaimSkip.SELF_PARENT,
            ClaimSkip.PARENT_CYCLE, ClaimSkip.UNRESOLVED,
        )
    ),
}  # fmt: skip


def test_odd_events_reach_everything_that_an_index_does_with_events() -> None:
    """Whatever is never reached is not tested. What is drawn depends on the constants of all loaded modules, so
    where one draw leaves something out, others are tried."""
    reached: set[str] = set()
    for number in range(5):

        @seed(number)
        @settings(THOROUGH, max_examples=200, database=None)
        @given(BATCHES)
        def hear_all(batches: list[list[Any]]) -> None:
            reached.update(hear(batches))

        hear_all()
        if reached >= EVERYTHING:
            return
    assert reached >= EVERYTHING


@THOROUGH
@given(st.lists(st.tuples(GOLDEN, st.lists(st.integers(0, 1 << 16), max_size=3)), max_size=5))
def test_payloads_of_engines_with_flipped_bits(payloads: list[tuple[bytes, list[int]]]) -> None:
    ear = Ear()
    ear.reply(replay_frames(b"", ReplayEnd()))
    for seq, (payload, bits) in enumerate(payloads):
        message = LiveMessage(b"", seq, flipped(payload, bits) if bits else payload)
        ear.live(live_frames(message))
    ear.index.check()


@THOROUGH
@given(
    st.lists(st.tuples(st.booleans(), FRAMES), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), GOLDEN | st.binary(max_size=9)), max_size=8),
)
def test_any_frames_on_both_sockets(
    frames: list[tuple[bool, list[bytes]]], replies: list[tuple[int, bytes]]
) -> None:
    """Frames that are no message, before and between the replies of a replay."""
    ear = Ear()
    for is_live, strange in frames:
        (ear.live if is_live else ear.reply)(strange)
    for seq, payload in replies:
        ear.reply(replay_frames(b"", ReplayReply(seq, payload)))
    ear.reply(replay_frames(b"", ReplayEnd()))
    ear.index.check()


# Dumps


def whole_dump() -> list[bytes]:
    """Lines of every kind."""
    fleet = SmallFleet("w")
    fleet.store("w", names(0, 4), blocks(0, 4))
    fleet.store("w", names(0, 2), blocks(0, 2), medium="CPU", cache_salt="s")
    fleet.store("w", names(60, 2), blocks(700, 2), names(55, 1)[0])
    fleet.store("w", names(80, 1), [], medium="CPU")
    fleet.remove("w", names(3, 1))
    fleet.serve("w", prompt(blocks(0, 6)), 4 * SIZE)
    fleet.index.apply(rank("w"), EventBatch(0.0, []), fleet.now, 7)
    return dump(fleet, rank("w"))


LINES = whole_dump()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 65) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def load(lines: list[bytes]) -> None:
    """What is not a dump is refused; what was loaded before stays, and is sound."""
    fleet = SmallFleet("w")
    loading = IndexLoad(fleet.index, fleet.now)
    try:
        for line in lines:
            loading.feed(line)
        loading.finish()
    except DumpError:
        pass
    fleet.index.check()
    fleet.store("w", names(0, 6), blocks(0, 6))
    assert fleet.match("w", prompt(blocks(0, 6))).gpu_blocks == 6
    fleet.clear("w")
    assert not any(fleet.index.residency(rank("w")).values())


@THOROUGH
@given(st.integers(0, 99), st.lists(st.integers(0, 1 << 16), min_size=1, max_size=4))
def test_dumps_with_flipped_bits(at: int, bits: list[int]) -> None:
    at %= len(LINES)
    load([*LINES[:at], flipped(LINES[at], bits), *LINES[at + 1 :]])


@THOROUGH
@given(st.lists(st.integers(0, 99), max_size=12))
def test_dumps_in_another_order(order: list[int]) -> None:
    load([LINES[0], *(LINES[i % len(LINES)] for i in order), LINES[-1]])


@THOROUGH
@given(st.integers(0, 99), st.integers(0, 99), JSON)
def test_dumps_with_another_value(at: int, field: int, value: Any) -> None:
    """One field of one line says anything at all."""
    at %= len(LINES)
    fields = json.loads(LINES[at])
    fields[sorted(fields)[field % len(fields)]] = value
    load([*LINES[:at], json.dumps(fields).encode(), *LINES[at + 1 :]])


def test_the_dump_loads_as_it_is() -> None:
    fleet = SmallFleet("w")
    loading = IndexLoad(fleet.index, fleet.now)
    for line in LINES:
        loading.feed(line)
    loading.finish()
    fleet.index.check()
    assert [line.worker for line in loading.loaded] == ["w"]
    assert {json.loads(line)["kind"] for line in LINES} >= {
        "held",
        "parked",
        "names",
        "space",
        "group",
    }
