"""The lines of a dumped index: one JSON object a line, a kind each, validated when they are read.

    header                                  format version
    rank                                    whose, trust, sequence mark, digests of its last payloads
      space                                 a key space, numbered within the rank
      group                                 a cache group; what follows is its own
        held                                hashes on a tier, the blocks they name beside them
        parked                              blocks whose parent is unknown
        names                               hashes that were held a while ago
      observed                              blocks that evidence holds
    rank_end                                the rank is whole
    …
    pool                                    a storage pool: which, trust and sequence mark of its own events
      space, group, held, names, parked     what those have told
      observed                              copies that are inferred
    pool_end                                the pool is whole
    …
    end                                     so is the dump

Format 1 has no pools, and is read too.

An engine hash is a number, or its bytes in hex; a block is the number of its space and its key.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from indexer.trust import Trust
from protocol import EngineHash, PoolName, StoragePool, Tier
from protocol.event_fields import MAX_HASH_BYTES
from protocol.fault_words import first_fault

FORMAT: Final = 2
READABLE: Final = (1, 2)
MAX_LINE_BYTES: Final = 16 << 20
MAX_IN_LINE: Final = 512
"""Hashes or blocks in one line."""

U64 = Annotated[int, Field(ge=0, lt=1 << 64)]
Number = Annotated[int, Field(ge=0, lt=1 << 63)]
Text = Annotated[str, Field(max_length=4096)]
HexText = Annotated[str, Field(max_length=2 * MAX_HASH_BYTES, pattern=r"^([0-9a-f]{2})*$")]
WireHash: TypeAlias = U64 | HexText
Hashes = Annotated[list[WireHash], Field(max_length=MAX_IN_LINE)]
Keys = Annotated[list[U64], Field(max_length=MAX_IN_LINE)]
BlockSize = Annotated[int, Field(ge=0, le=1 << 24)]
UsedSize = Annotated[int, Field(ge=1, le=1 << 24)]
TierName: TypeAlias = Literal["gpu", "host", "storage"]

TIERS: Final[dict[TierName, Tier]] = {"gpu": Tier.GPU, "host": Tier.HOST, "storage": Tier.STORAGE}
NAMES: Final[dict[Tier, TierName]] = {tier: name for name, tier in TIERS.items()}


class LoadSkip(StrEnum):
    """Why a rank of a dump is not loaded."""

    NOT_WANTED = "not_wanted"
    UNKNOWN_WORKER = "unknown_worker"
    OTHER_WORKER = "other_worker"  # of this name, at another address or of another model
    NOT_TRUSTED = "not_trusted"  # its claims were in flux, or contradicted
    KNOWN_ALREADY = "known_already"  # events have told something of it
    UNKNOWN_POOL = "unknown_pool"  # no worker that is known shares it


class DumpError(ValueError):
    """The dump cannot be loaded. The message says where and why."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class HeaderLine(_Line):
    """The first line."""

    kind: Literal["header"] = "header"
    format: int = FORMAT


class RankLine(_Line):
    """A rank begins.

    Attributes:
        seq: the last batch that its claims rest on as a whole; the next one is to be applied to them.
        digests: number and XXH3-64 of the last payloads up to ``seq``, which tell a publisher's process.
    """

    kind: Literal["rank"] = "rank"
    worker: Text
    dp_rank: Annotated[int, Field(ge=0, le=511)]
    url: Text
    model: Text
    engine: Text
    version: Text | None
    trust: Trust
    seq: Number | None
    digests: Annotated[list[tuple[Number, U64]], Field(max_length=1024)] = []
    geometries: Annotated[list[tuple[UsedSize, bool, Number]], Field(max_length=64)] = []
    sparse: Annotated[list[int], Field(max_length=64)] = []
    speaks_extra_keys: bool = False
    has_placeholders: bool = False


class PoolLine(_Line):
    """A storage pool begins; its fields say which.

    Attributes:
        trust: of its own events; NONE where they are not heard.
        seq, digests: of its own events, as a rank has them; pools that publish together have the same.
    """

    kind: Literal["pool"] = "pool"
    name: Text | None
    backend: Text | None
    address: Text | None
    model: Text
    layout: Text
    namespace: Text
    trust: Trust
    seq: Number | None
    digests: Annotated[list[tuple[Number, U64]], Field(max_length=1024)] = []
    geometries: Annotated[list[tuple[UsedSize, bool, Number]], Field(max_length=64)] = []

    @property
    def pool(self) -> StoragePool:
        """The pool."""
        name = None if self.name is None else PoolName(self.name)
        return StoragePool(
            name, self.backend, self.address, self.model, self.layout, self.namespace
        )


class SpaceLine(_Line):
    """A key space of the rank's or pool's model."""

    kind: Literal["space"] = "space"
    number: Number
    adapter: Text | None
    salt: Text | None
    block_size: UsedSize
    is_eagle: bool


class GroupLine(_Line):
    """A cache group begins."""

    kind: Literal["group"] = "group"
    index: int | None


class HeldLine(_Line):
    """Hashes on a tier, oldest first. Without a space they name no block."""

    kind: Literal["held"] = "held"
    tier: TierName
    space: Number | None
    hashes: Hashes
    keys: Keys = []
    is_unkeyable: bool = False


class NamesLine(_Line):
    """Hashes that were held a while ago, oldest first."""

    kind: Literal["names"] = "names"
    space: Number
    hashes: Hashes
    keys: Keys


class ParkedLine(_Line):
    """Blocks whose parent is unknown, or before them in another such line; tokens are little-endian u32 in base64."""

    kind: Literal["parked"] = "parked"
    parent: WireHash
    hashes: Hashes
    tokens: str
    block_size: BlockSize
    is_eagle: bool
    adapter: Text | None
    salt: Text | None
    multimodal: Annotated[list[tuple[Number, Keys]], Field(max_length=MAX_IN_LINE)] = []
    num_known: Number


class ObservedLine(_Line):
    """Blocks that evidence holds, or that are inferred, and how old that is, in seconds; oldest first."""

    kind: Literal["observed"] = "observed"
    space: Number
    keys: Keys
    age_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RankEndLine(_Line):
    """The rank is whole: so many hashes are held, a tier each."""

    kind: Literal["rank_end"] = "rank_end"
    held: Number


class PoolEndLine(_Line):
    """The pool is whole: its own events have it hold so many hashes, a tier each."""

    kind: Literal["pool_end"] = "pool_end"
    held: Number


class EndLine(_Line):
    """The dump is whole."""

    kind: Literal["end"] = "end"
    ranks: Number
    pools: Number = 0


Line: TypeAlias = (
    HeaderLine | RankLine | SpaceLine | GroupLine | HeldLine | NamesLine | ParkedLine
    | ObservedLine | RankEndLine | PoolLine | PoolEndLine | EndLine
)  # fmt: skip
_LINES: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def write_line(line: Line) -> bytes:
    """One line, with its end."""
    return line.model_dump_json().encode() + b"\n"


def read_line(raw: bytes, number: int) -> Line:
    """One line.

    Raises:
        DumpError: it is none; ``number`` says where.
    """
    try:
        return _LINES.validate_json(raw)
    except ValidationError as error:
        raise DumpError(f"line {number}: {first_fault(error)}") from error


def wire_hash(block_hash: EngineHash) -> int | str:
    """A hash as a line has it."""
    return block_hash if isinstance(block_hash, int) else block_hash.hex()


def engine_hash(wire: int | str) -> EngineHash:
    """A hash as a line has it, back."""
    return wire if isinstance(wire, int) else bytes.fromhex(wire)
