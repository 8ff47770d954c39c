"""The truth about a small fleet, kept as plainly as possible: dictionaries of sets, chains walked by hand.

A block is a path of letters in a namespace, a letter is one block of two tokens. Nothing here is shared
with the index: keys, hashes and masks do not occur.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from indexer.match import Prompt, RankMatch
from protocol import BlockStored, EngineHash, Tier, pack_tokens

BLOCK = 2
TOKENS = {"a": (1, 2), "b": (3, 4), "c": (5, 6)}
MEDIA = {Tier.GPU: "GPU", Tier.HOST: "CPU_PINNED", Tier.STORAGE: "DISK"}


@dataclass(frozen=True, slots=True)
class Block:
    """The block at the end of a path in a namespace of (adapter, salt)."""

    path: str
    adapter: str | None = None
    salt: str | None = None

    @property
    def parent(self) -> "Block | None":
        return Block(self.path[:-1], self.adapter, self.salt) if len(self.path) > 1 else None

    @property
    def engine_hash(self) -> EngineHash:
        """An arbitrary number of its own, as engines make them."""
        name = f"{self.adapter}|{self.salt}|{self.path}"
        return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")

    def chain(self) -> Iterator["Block"]:
        """Blocks from the root to this one."""
        for end in range(1, len(self.path) + 1):
            yield Block(self.path[:end], self.adapter, self.salt)


def tokens_of(path: str) -> list[int]:
    return [token for letter in path for token in TOKENS[letter]]


def prompt_of(block: Block) -> Prompt:
    """The prompt that ends with the block, plus a partial block."""
    tokens = [*tokens_of(block.path), 9]
    return Prompt(pack_tokens(tokens), "m", block.adapter, block.salt)


def stored(block: Block, first: int, tier: Tier) -> BlockStored:
    """The event that stores the blocks ``first`` … of a path in one piece."""
    blocks = list(block.chain())[first:]
    parent = blocks[0].parent
    return BlockStored(
        block_hashes=[b.engine_hash for b in blocks],
        parent_hash=parent.engine_hash if parent else None,
        token_ids=tokens_of(block.path[first:]),
        block_size=BLOCK,
        medium=MEDIA[tier],
        lora_name=block.adapter,
        cache_salt=block.salt,
    )


@dataclass
class RankOracle:
    """What one rank may be believed to hold.

    Attributes:
        held: announced blocks by tier, whether their parents are known or not.
        linked: blocks whose parent was named by an event.
        doubted: (tier, block) older than a loss, and when it goes.
        observed, predicted: with the time they were last marked.
    """

    held: dict[Tier, set[Block]] = field(default_factory=lambda: {tier: set() for tier in Tier})
    linked: set[Block] = field(default_factory=set)
    doubted: dict[tuple[Tier, Block], float] = field(default_factory=dict)
    observed: dict[Block, float] = field(default_factory=dict)
    predicted: dict[Block, float] = field(default_factory=dict)
    duplicates: int = 0
    unknown_removals: int = 0

    def is_named(self, block: Block) -> bool:
        """Whether the whole chain up to the root was heard of."""
        return all(b in self.linked for b in block.chain())

    def store(self, tier: Tier, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self.duplicates += block in self.held[tier]
            self.held[tier].add(block)
            self.linked.add(block)
            self.doubted.pop((tier, block), None)
        if tier is Tier.GPU:
            self._supersede()

    def remove(self, tier: Tier, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self.unknown_removals += block not in self.held[tier]
            self.held[tier].discard(block)
            self.doubted.pop((tier, block), None)
            if tier is Tier.GPU and self.is_named(block):
                self.observed.pop(block, None)

    def clear(self, tier: Tier) -> None:
        was_empty = not self.held[tier]
        self.held[tier].clear()
        self.doubted = {one: at for one, at in self.doubted.items() if one[0] is not tier}
        if tier is Tier.GPU:
            self.observed.clear()
        if not was_empty and not any(self.held.values()):
            self.linked = {block for block in self.linked if self.is_named(block)}

    def clear_all(self) -> None:
        for tier in Tier:
            self.clear(tier)
        self.predicted.clear()

    def forget(self) -> None:
        duplicates, unknown = self.duplicates, self.unknown_removals
        self.__init__()  # type: ignore[misc]
        self.duplicates, self.unknown_removals = duplicates, unknown

    def lose(self, now: float, ttl: float) -> None:
        held = {(t, b) for t, blocks in self.held.items() for b in blocks}
        self.doubted = {**dict.fromkeys(held, now + ttl), **self.doubted}

    def predict(self, block: Block, now: float) -> None:
        for b in block.chain():
            if not self.is_claimed(b) and b not in self.observed:
                self.predicted[b] = now

    def withdraw(self, block: Block, under_way: Iterable[Block]) -> None:
        kept = {b for other in under_way for b in other.chain()}
        for b in block.chain():
            if b not in kept:
                self.predicted.pop(b, None)

    def observe(self, block: Block, now: float, *, is_exact: bool) -> None:
        for b in block.chain():
            if self.is_on(Tier.GPU, b):
                self.doubted.pop((Tier.GPU, b), None)
            elif not is_exact or b in self.predicted or b in self.observed:
                self.observed[b] = now
                self.predicted.pop(b, None)

    def expire(self, now: float, observed_ttl: float, predicted_ttl: float) -> None:
        self.observed = {b: t for b, t in self.observed.items() if t >= now - observed_ttl}
        self.predicted = {b: t for b, t in self.predicted.items() if t >= now - predicted_ttl}
        for tier, block in [one for one, at in self.doubted.items() if now >= at]:
            del self.doubted[tier, block]
            self.held[tier].discard(block)
            if tier is Tier.GPU:
                self.observed.pop(block, None)

    def is_on(self, tier: Tier, block: Block) -> bool:
        return block in self.held[tier] and self.is_named(block)

    def forget_names(self, adapter: str | None, salt: str | None) -> None:
        """Nobody holds a block of the namespace: what its hashes named is forgotten."""
        self.linked -= {
            b for b in self.linked if (b.adapter, b.salt) == (adapter, salt) and self.is_named(b)
        }

    def uses(self, adapter: str | None, salt: str | None) -> bool:
        """Whether the rank has a claim of any kind in the namespace."""
        held = {b for blocks in self.held.values() for b in blocks if self.is_named(b)}
        return any(
            (b.adapter, b.salt) == (adapter, salt) for b in (*held, *self.observed, *self.predicted)
        )

    def is_claimed(self, block: Block) -> bool:
        return any(self.is_on(tier, block) for tier in Tier)

    def assert_match(self, block: Block, match: RankMatch) -> None:
        """The match is the run from the root, each block on its fastest tier, and what follows it."""
        counts = {"gpu": 0, "host": 0, "storage": 0, "observed": 0, "predicted": 0}
        past_run = False
        for b in block.chain():
            kind = self._kind(b)
            if kind is None:
                break
            past_run = past_run or kind == "predicted"
            counts["predicted" if past_run else kind] += 1
        assert match.gpu_blocks == counts["gpu"] + counts["observed"], (block, counts, match)
        assert match.host_pinned_blocks == counts["host"], (block, counts, match)
        assert match.storage_blocks == counts["storage"], (block, counts, match)
        assert match.observed_blocks == counts["observed"], (block, counts, match)
        assert match.predicted_blocks == counts["predicted"], (block, counts, match)

    def _kind(self, block: Block) -> str | None:
        if self.is_on(Tier.GPU, block):
            return "gpu"
        if self.is_on(Tier.HOST, block):
            return "host"
        if block in self.observed:
            return "observed"
        if self.is_on(Tier.STORAGE, block):
            return "storage"
        return "predicted" if block in self.predicted else None

    def _supersede(self) -> None:
        for block in [*self.observed, *self.predicted]:
            if self.is_on(Tier.GPU, block):
                self.observed.pop(block, None)
                self.predicted.pop(block, None)
