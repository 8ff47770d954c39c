"""What the planner counts; all values only rise, but for ``open_plans``."""

from collections import Counter
from dataclasses import dataclass, field, replace

from indexer.match import RankMatch
from protocol import DEFAULT_ENGINE_MODEL
from scoring.brain import OutcomeKind
from scoring.decision import Reason
from scoring.policies import PolicyName
from scoring.prefix_index import IndexVerb
from scoring.rates import HitWeights, hit_weights
from scoring.speeds import NoSample


@dataclass(slots=True)
class ReuseSums:
    """Sums over completed answers for which we had a match and the engine reported its hits.

    ``matched_*`` is what the chosen rank's match said (predictions apart), ``reported_*``
    what the engine said, in blocks of the rank and in tokens; ``*_weight`` is the blocks, each by what a hit on
    its tier saves. Engines do not say where hits lay: reported blocks are taken to be those of the match, fastest
    tier first, and beyond it on GPU.
    """

    weights: HitWeights
    answers: int = 0
    prompt_tokens: int = 0
    matched_blocks: int = 0
    reported_blocks: int = 0
    matched_tokens: int = 0
    reported_tokens: int = 0
    matched_weight: float = 0.0
    reported_weight: float = 0.0

    def add(self, match: RankMatch, prompt_tokens: int, cached_tokens: int) -> None:
        """One answer."""
        self.answers += 1
        self.prompt_tokens += prompt_tokens
        self.matched_blocks += match.matched_blocks
        self.matched_tokens += match.matched_tokens
        reported = cached_tokens // match.block_size
        self.reported_blocks += reported
        self.reported_tokens += cached_tokens
        gpu, host, storage = match.gpu_blocks, match.host_pinned_blocks, match.storage_blocks
        by_host, by_storage = self.weights
        self.matched_weight += gpu + by_host * host + by_storage * storage
        from_host = min(max(reported - gpu, 0), host)
        from_storage = min(max(reported - gpu - host, 0), storage)
        on_gpu = reported - from_host - from_storage
        self.reported_weight += on_gpu + by_host * from_host + by_storage * from_storage


@dataclass(slots=True)
class PlannerCounters:
    """The planner's counters.

    Attributes:
        plans: by policy and reason; plans without a candidate are in ``no_candidate`` alone.
        refused: plans refused because too many were open.
        index_failures: exceptions of the index, by what was asked; under ``match`` they made a
            request route on load alone.
        unknown_first_bytes, unknown_finishes: calls about plans that are not open.
        expired: plans given up because nobody finished them.
        gone: finished plans whose rank had left; nothing was learned from them.
        lengths_equal, lengths_differ: answers in which the engine's prompt length was ours, or not.
        no_samples: answers that taught nothing about speed, by reason.
    """

    plans: Counter[tuple[PolicyName, Reason]] = field(default_factory=Counter)
    no_candidate: int = 0
    refused: int = 0
    index_failures: dict[IndexVerb, int] = field(default_factory=dict)
    open_plans: int = 0
    unknown_first_bytes: int = 0
    unknown_finishes: int = 0
    expired: int = 0
    gone: int = 0
    outcomes: Counter[OutcomeKind] = field(default_factory=Counter)
    reuse: ReuseSums = field(default_factory=lambda: ReuseSums(hit_weights(DEFAULT_ENGINE_MODEL)))
    lengths_equal: int = 0
    lengths_differ: int = 0
    speed_samples: int = 0
    no_samples: Counter[NoSample] = field(default_factory=Counter)

    def copy(self) -> "PlannerCounters":
        """A snapshot that later counting leaves alone."""
        return replace(
            self,
            plans=self.plans.copy(),
            index_failures=self.index_failures.copy(),
            outcomes=self.outcomes.copy(),
            reuse=replace(self.reuse),
            no_samples=self.no_samples.copy(),
        )
