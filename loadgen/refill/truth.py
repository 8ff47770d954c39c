"""What workers truly hold, as they say at ``/debug/residency``, and the run that a rank has of a prefix.

The run is counted as the router counts it: leading blocks that are on a tier, each on its fastest one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from loadgen.control_port import CandidateView
from protocol import EngineHash


class RankTruth(BaseModel):
    """One rank. Hashes are decimal strings."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    dp_rank: int
    gpu: frozenset[str] = Field(alias="GPU")
    host: frozenset[str] = Field(alias="CPU_PINNED")
    last_seq: int | None
    is_idle: bool
    counters: dict[str, int]

    def run(self, hashes: Sequence[EngineHash]) -> "Run":
        """Leading blocks held, by tier. O(run)."""
        gpu = host = 0
        for name in map(str, hashes):
            if name in self.gpu:
                gpu += 1
            elif name in self.host:
                host += 1
            else:
                break
        return Run(gpu, host)

    def host_copies(self, hashes: Sequence[EngineHash]) -> int:
        """How many of the blocks have a host copy."""
        return sum(name in self.host for name in map(str, hashes))

    def holds(self, hashes: Sequence[EngineHash]) -> bool:
        """Whether any of the blocks has a copy on GPU or host."""
        return any(name in self.gpu or name in self.host for name in map(str, hashes))


class WorkerTruth(BaseModel):
    """One worker's answer."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    ranks: tuple[RankTruth, ...]

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, is in flight or waits to be published."""
        return all(rank.is_idle for rank in self.ranks)

    def total(self, counter: str) -> int:
        """One counter over all ranks."""
        return sum(rank.counters.get(counter, 0) for rank in self.ranks)


@dataclass(frozen=True, slots=True)
class Run:
    """Leading blocks of a prefix that a rank has: on GPU, and on host alone."""

    gpu_blocks: int
    host_blocks: int

    def is_host_only(self, num_blocks: int) -> bool:
        """Whether the whole prefix is on host and nothing of it on GPU."""
        return self.gpu_blocks == 0 and self.host_blocks == num_blocks


def announced(candidate: CandidateView) -> Run:
    """What the router claims for a rank on the word of events: evidence is of GPU blocks alone."""
    return Run(candidate.gpu_blocks - candidate.observed_blocks, candidate.host_pinned_blocks)


def num_mismatches(candidate: CandidateView, truth: Run) -> int:
    """Tiers on which claim and truth differ. Storage is never announced: a claim on it is one."""
    claim = announced(candidate)
    return (
        (claim.gpu_blocks != truth.gpu_blocks)
        + (claim.host_blocks != truth.host_blocks)
        + (candidate.storage_blocks != 0)
    )
