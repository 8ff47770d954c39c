"""What one block pool is: sizes, and the form of what it announces."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """Sizes are tokens.

    Attributes:
        device_tokens: device pool; what fills no block is left unused.
        offload_tokens: CPU pool that full blocks are copied to; None = no offload.
        offload_blocks: blocks that are copied, announced and evicted together.
        is_self_describing: CPU stores name each block with its tokens; without it, each copy is announced by
            the hash of its last block alone.
        has_byte_hashes: hashes are published whole, 32 bytes; without it, their low 64 bits.
        adapters: names of LoRAs; an ``extra_key`` that is one of them is announced as such.
        events_enabled: False = nothing is recorded.
    """

    block_size: int
    device_tokens: int
    offload_tokens: int | None = None
    offload_blocks: int = 1
    is_self_describing: bool = False
    has_byte_hashes: bool = False
    adapters: tuple[str, ...] = ()
    events_enabled: bool = True

    def __post_init__(self) -> None:
        if self.block_size < 1 or self.offload_blocks < 1:
            raise ValueError("block_size and offload_blocks are at least 1")
        if self.device_tokens < 0 or (self.offload_tokens or 0) < 0:
            raise ValueError("pools hold no negative number of tokens")

    @property
    def num_blocks(self) -> int:
        """Blocks of the device pool."""
        return self.device_tokens // self.block_size

    @property
    def num_copies(self) -> int:
        """Copies that the CPU pool holds."""
        return (self.offload_tokens or 0) // (self.block_size * self.offload_blocks)
