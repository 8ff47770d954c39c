"""Sizes of the refill story, chosen so that only refilled copies can be on host when decisions start.

prompt = prefix (whole blocks) ‖ tail      tail + output < one block: no request adds a block
GPU    holds ``gpu_prefixes``              far fewer than a worker is asked for: prefixes leave it soon
host   holds ``host_prefixes``             a worker is sent as many before decisions start, none of
                                           which it computed: what it computed is pushed out; after
                                           the decisions as many others push out these
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from loadgen.fleet import FleetSpec
from loadgen.spec_error import SpecError


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
        for field, holds, what in self._demands():
            if not holds:
                raise SpecError(field, what)

    def _demands(self) -> Iterator[tuple[str, bool, str]]:
        """Field, whether it is as it must be, how it must be; each may rely on those before it."""
        yield "num_workers", self.num_workers >= 2, "two or more"
        for field in ("page_size", "prefix_blocks", "decisions", "tail_tokens", "output_tokens"):
            yield field, getattr(self, field) >= 1, "at least 1"
        is_shared = self.num_prefixes >= 1 and self.num_prefixes % self.num_workers == 0
        yield "num_prefixes", is_shared, f"a multiple of the {self.num_workers} workers"
        is_pool = self.host_prefixes % self.share == 0
        is_pool = is_pool and self.share < self.host_prefixes <= self.num_prefixes // 2
        yield (
            "host_prefixes",
            is_pool,
            f"a multiple of {self.share}, a worker's share, above it and at most half of all prefixes",
        )
        is_small = 1 <= self.gpu_prefixes * 2 <= self.share
        yield (
            "gpu_prefixes",
            is_small,
            f"at least 1, at most half of {self.share}, a worker's share",
        )
        rest = self.tail_tokens + self.output_tokens
        yield "page_size", rest < self.page_size, f"above {rest}: a tail and an answer are no block"
        yield "engine_speed", 0 < self.engine_speed < math.inf, "above 0"

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
