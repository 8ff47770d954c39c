"""What one seed is about: engines, publishers, network, and how replays are answered."""

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from tests.worker.virtual_time import MODEL
from worker.engine_settings import EngineSettings
from worker.prefetch import PrefetchLimits, PrefetchPolicy
from worker.tree import EvictionPolicy, HashFormat, TreeConfig, WritePolicy


class Replay(StrEnum):
    """How a publisher answers when asked for batches of the past."""

    NONE = "none"  # there is no socket
    FULL = "full"
    TRUNCATED = "truncated"  # its buffer is short
    HANGING = "hanging"  # never a word
    UNREADABLE = "unreadable"  # some batches cannot be decoded, as they could not be live
    BREAKING = "breaking"  # falls silent in the middle
    SKIPPING = "skipping"  # leaves batches out
    LATE = "late"  # begins to answer when it may have been given up


PAGE_SIZES = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities: per message, or per second of the whole fleet."""

    drop: float = 0.0
    duplicate: float = 0.0
    foreign: float = 0.0  # frames that are no message of ours, or no reply
    disconnect: float = 0.0  # per second
    partition: float = 0.0  # per second
    restart: float = 0.0  # per second
    delay: float = 0.0  # of half a second and more
    clear: float = 0.0  # per second, once or in a storm
    leave: float = 0.0  # per second: a client does not wait for its answer
    replay_garbles: float = 0.0  # per reply: frames that are none

    def and_more(self, rng: Random) -> "Faults":
        """With those of the second kind, of which each is off in about half of all scenarios."""
        return replace(
            self,
            restart=_chance(rng, 0.4),
            delay=_chance(rng, 0.05),
            clear=_chance(rng, 0.5),
            leave=_chance(rng, 0.5),
            replay_garbles=_chance(rng, 0.02),
        )


HEALTHY = Faults()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One mixture of circumstances.

    Attributes:
        engines: settings by name, the same for every rank of an engine.
        has_shared_socket: all ranks of an engine speak on one socket.
        num_parts: 0 hands batches on as they are, more cuts them into parts of so many blocks.
        is_late: engines serve a while before anybody listens.
        heals: a publisher that does not answer does so in the end.
        has_last_words: ranks publish after the network has healed, so that numbers show what is missing.
        extra_keys: namespaces that no hash tells apart where there are two.
        subscription_s: a subscription is in force at most so long after its connection.
        reconnects: every connection breaks once more when the network heals; else what was lost at its end
            shows in a silence, or by the next number.
    """

    engines: dict[str, EngineSettings]
    num_ranks: int
    has_shared_socket: bool
    has_storage: bool
    num_parts: int
    replay: Replay
    buffer_steps: int
    has_topic_frame: bool
    is_late: bool
    heals: bool
    has_last_words: bool
    extra_keys: tuple[str | None, ...]
    salts: tuple[str | None, ...]
    num_prefixes: int
    duration_s: float
    faults: Faults
    subscription_s: float = 0.3
    reconnects: bool = True

    @classmethod
    def draw(cls, rng: Random) -> "Scenario":
        """Each fault is off in about half of all scenarios."""
        in_time = [kind for kind in Replay if kind is not Replay.LATE]
        replay = rng.choice([Replay.NONE, *in_time, Replay.FULL])
        num_ranks = rng.choice([1, 1, 2, 3])
        return cls(
            engines={f"w{i}": _engine(rng) for i in range(rng.choice([1, 2, 3]))},
            num_ranks=num_ranks,
            has_shared_socket=num_ranks > 1 and rng.random() < 0.5,
            has_storage=rng.random() < 0.5,
            num_parts=rng.choice([0, 0, 1, 3]),
            replay=replay,
            buffer_steps=rng.choice([2, 6]) if replay is Replay.TRUNCATED else 100_000,
            has_topic_frame=rng.random() < 0.5,
            is_late=rng.random() < 0.4,
            heals=rng.random() < 0.5,
            has_last_words=replay is not Replay.FULL or rng.random() < 0.6,
            extra_keys=rng.choice([(None,), (None,), ("ad-ns", None), ("a", "b")]),
            salts=rng.choice([(None,), (None, "s")]),
            num_prefixes=rng.choice([2, 6, 15]),
            duration_s=rng.uniform(3.0, 8.0),
            faults=_faults(rng),
        )

    def and_more(self, rng: Random) -> "Scenario":
        """With faults of the second kind, late replays, slow joiners, larger pages and pairs of tokens."""
        is_late = self.replay is Replay.FULL and rng.random() < 0.4
        return replace(
            self,
            engines={name: _other_pages(one, rng) for name, one in self.engines.items()},
            replay=Replay.LATE if is_late else self.replay,
            has_last_words=self.has_last_words or is_late,
            faults=self.faults.and_more(rng),
            subscription_s=rng.choice([0.3, 2.0]),
            reconnects=rng.random() < 0.4,
        )

    @property
    def has_collisions(self) -> bool:
        """Whether equal hashes may stand for blocks of two namespaces."""
        return len(set(self.extra_keys) - {"ad-ns"}) > 1

    @property
    def largest_page(self) -> int:
        """Tokens a page, of the engine that has the largest."""
        return max(engine.tree.page_size for engine in self.engines.values())

    def healed(self) -> "Scenario":
        """The same with a good network, and good replays where what was wrong was not lasting."""
        is_lasting = self.replay in (Replay.NONE, Replay.TRUNCATED, Replay.UNREADABLE)
        is_lasting |= self.replay is Replay.HANGING and not self.heals
        return replace(self, faults=HEALTHY, replay=self.replay if is_lasting else Replay.FULL)


def _engine(rng: Random) -> EngineSettings:
    page = rng.choice([1, 4])
    tree = TreeConfig(
        page_size=page,
        device_tokens=rng.choice([96, 160, 400]),
        host_tokens=rng.choice([None, 64, 128, 400]),
        write_policy=rng.choice(list(WritePolicy)),
        load_back_threshold=rng.choice([0, 10]),
        eviction_policy=rng.choice(list(EvictionPolicy)),
        hash_format=rng.choice(list(HashFormat)),
        adapters={"ad-ns": "ad"},
    )
    waits = rng.choice(list(PrefetchPolicy))
    return EngineSettings(
        tree,
        MODEL,
        PrefetchLimits(rng.choice([page, 4 * page]), waits, 0.05, 0.0),
        max_running=rng.choice([2, 64]),
        chunk_tokens=rng.choice([32, 8_192]),
        decode_log_interval=rng.choice([1, 5, 40]),
    )


def _other_pages(engine: EngineSettings, rng: Random) -> EngineSettings:
    """Some engines with pages of more tokens, some with pages of overlapping pairs."""
    page, is_eagle = engine.tree.page_size, rng.random() < 0.25
    if rng.random() < 0.3:
        page = PAGE_SIZES[-1]
    prefetch = replace(engine.prefetch, threshold=max(page, engine.prefetch.threshold))
    return replace(
        engine, tree=replace(engine.tree, page_size=page, is_eagle=is_eagle), prefetch=prefetch
    )


def _faults(rng: Random) -> Faults:
    return Faults(
        drop=_chance(rng, 0.2),
        duplicate=_chance(rng, 0.1),
        foreign=_chance(rng, 0.05),
        disconnect=_chance(rng, 0.4),
        partition=_chance(rng, 0.15),
        restart=_chance(rng, 0.2),
    )


def _chance(rng: Random, upper: float) -> float:
    return rng.uniform(0, upper) if rng.random() < 0.5 else 0.0
