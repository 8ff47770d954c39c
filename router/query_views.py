"""What ``POST /query`` and ``POST /query_by_hash`` take and answer.

The form is Mooncake's conductor's; ``trust`` and ``storage_source`` are added to its answer, by rank as ``DP`` is.

Source: Mooncake's indexer API design (``/query``, ``/query_by_hash``): names, nesting and units of fields.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator

from indexer.storage_source import StorageSource
from indexer.trust import Trust

Hash = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
BlockSize = Annotated[int, Field(ge=1, le=1 << 24)]


class PrefixBody(BaseModel):
    """What both queries have in common. Fields that are not known are ignored.

    Attributes:
        model: by its own name, or by an alias.
        lora_name: the adapter; null or empty for the base model.
        lora_id: the adapter, where its events name it by number alone.
        cache_salt: the request's; prompts with another salt, or none, share nothing with it.
        tenant_id: repeated in the answer; tenants are kept apart by ``cache_salt`` alone.
        instance_id: a worker's id; null for all that serve the model.
        block_size: in tokens; null where each rank answers at those that its own events use.
    """

    model_config = ConfigDict(strict=True)

    model: str
    lora_name: str | None = None
    lora_id: int | None = None
    cache_salt: str | None = None
    tenant_id: str = "default"
    instance_id: str | None = None
    block_size: BlockSize | None = None

    @property
    def adapter(self) -> str | None:
        """As the index names it."""
        if self.lora_name:
            return self.lora_name
        return None if self.lora_id is None else f"#{self.lora_id}"


class TokenQuery(PrefixBody):
    """Body of ``POST /query``.

    Attributes:
        token_ids: of the prompt, from its first token on; only full blocks are looked up.
    """

    token_ids: list[int] = Field(
        json_schema_extra={"items": {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}}
    )


class HashQuery(PrefixBody):
    """Body of ``POST /query_by_hash``.

    Attributes:
        seq_hashes: of the prompt's blocks, in order: chained XXH3-64 with seed 1337 over little-endian u32 tokens,
            unsigned or as the signed form of the same 64 bits.
        block_hash: an older name of ``seq_hashes``, in place of it.
    """

    seq_hashes: list[Hash] = Field(default_factory=list)
    block_hash: list[Hash] | None = None

    @model_validator(mode="after")
    def _one_list(self) -> "HashQuery":
        if self.block_hash is not None and self.seq_hashes:
            raise ValueError("seq_hashes and block_hash are the same list")
        return self


class HeldPrefixView(BaseModel):
    """What one worker holds of the prompt. Its best rank counts; maps have a key a rank.

    Attributes:
        longest_matched: tokens of the longest run of leading blocks, each on any medium.
        GPU: tokens of such a run that are on GPU, as announced or as served requests prove.
        CPU: tokens of it in pinned host memory.
        DISK: tokens of it in storage, of the rank's own or of its storage pool.
        DP: tokens of each rank's longest run.
        trust: how far what is known of each rank can be believed.
        storage_source: the weakest that the tokens of each rank on DISK rest on; null where it has none.
    """

    longest_matched: int
    GPU: int
    CPU: int
    DISK: int
    DP: dict[str, int]
    trust: dict[str, Trust]
    storage_source: dict[str, StorageSource | None]


class QueryAnswer(RootModel[dict[str, dict[str, HeldPrefixView]]]):
    """Tenant, as it was asked for → worker → what it holds. A block on several media counts on each of them."""
