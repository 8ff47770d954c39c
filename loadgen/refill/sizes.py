"""Sizes of the refill story, chosen so that only refilled copies can be on host when decisions start.

prompt = prefix (whole blocks) ‖ tail      tail + output < one block: no request adds a block
GPU    holds ``gpu_prefixes``              far fewer than a worker is asked for: prefixes leave it soon
host   holds ``host_prefixes``             a worker is sent as many before decisions start, none of
                                           which it computed: what it computed is pushed out; after
                                           the decisions as many others push out these
"""

from dataclasses import dataclass

from loadgen.fleet import FleetSpec


@dataclass(frozen=True, slots=True)
class RefillSpec:
    """How large the story is.

    Attributes:
        num_prefixes: distinct ones; a multiple of the workers, each of which computes its share.
        prefix_blocks: whole blocks of each.
        tail_tokens: after the prefix, different in every request.
        gpu_prefixes: room on each worker's GPU; ``host_prefixes`` in its host pool.
        decisions: requests through the router.
        engine_speed: engine seconds in a second of wall time.
        settle_s: how long the fleet may take to come to rest after a request.
    """

    num_workers: int = 8
    page_size: int = 64
    num_prefixes: int = 128
    prefix_blocks: int = 22
    tail_tokens: int = 24
    output_tokens: int = 4
    gpu_prefixes: int = 4
    host_prefixes: int = 32
    decisions: int = 344
    engine_speed: float = 10.0
    settle_s: float = 20.0

    def __post_init__(self) -> None:
        if self.num_workers < 2 or self.num_prefixes % self.num_workers:
            raise ValueError(
                "num_prefixes is a multiple of num_workers, of which there are two or more"
            )
        if self.host_prefixes % self.share or not (
            self.share < self.host_prefixes <= self.num_prefixes // 2
        ):
            raise ValueError(
                "host_prefixes is a multiple of a worker's share, above it and at most half of all"
            )
        if not 0 < self.tail_tokens < self.tail_tokens + self.output_tokens < self.page_size:
            raise ValueError("tail_tokens and output_tokens together are less than a page")
        if self.gpu_prefixes < 1 or self.gpu_prefixes * 2 > self.share:
            raise ValueError("gpu_prefixes is at most half of a worker's share")
        if min(self.prefix_blocks, self.decisions) < 1 or self.engine_speed <= 0:
            raise ValueError("prefix_blocks, decisions and engine_speed are above 0")

    @property
    def prefix_tokens(self) -> int:
        """Length of a prefix."""
        return self.prefix_blocks * self.page_size

    @property
    def host_tokens(self) -> int:
        """Room in all host pools together."""
        return self.num_workers * self.host_prefixes * self.prefix_tokens

    @property
    def share(self) -> int:
        """Prefixes that each worker computes."""
        return self.num_prefixes // self.num_workers

    def computed_by(self, worker_index: int) -> range:
        """Prefixes that a worker computes."""
        start = worker_index % self.num_workers * self.share
        return range(start, start + self.share)

    def refilled_by(self, worker_index: int) -> list[int]:
        """Prefixes that a worker is sent then: the shares of the workers after it, a host pool full."""
        shares = self.host_prefixes // self.share
        return [
            prefix
            for step in range(1, shares + 1)
            for prefix in self.computed_by(worker_index + step)
        ]

    def fleet(self, storage: str, *, is_muted: bool) -> FleetSpec:
        """The workers over one shared storage, and the router in front of them."""
        request = self.prefix_tokens + self.page_size
        flags = {
            "--page-size": self.page_size,
            "--gpu-tokens": (self.gpu_prefixes + 1) * request,
            "--host-tokens": self.host_prefixes * self.prefix_tokens,
            "--storage": f"dir:{storage}",
            "--speed": self.engine_speed,
            "--log-level": "warning",
        }
        muted = ("--mute-refill-events",) if is_muted else ()
        worker_flags = (*(str(part) for pair in flags.items() for part in pair), *muted)
        return FleetSpec(self.num_workers, worker_flags, ("--policy", "cost"))
