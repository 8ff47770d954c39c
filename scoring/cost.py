"""Cost: how many milliseconds one rank takes to begin an answer, as a sum of five terms.

    queue      booked uncached prefill work ahead
    prefill    of the prompt tokens that the rank does not hold
    load_back  of those it holds in host memory
    fetch      of those it holds in storage, where that is quicker than prefilling them
    decode     what the requests in flight take from the first tokens of the answer

All terms are milliseconds on the same clock, so nothing needs weighing against anything else: what a
hit is worth on each tier follows from the rates.

A prompt of n tokens, as one rank sees it:

    0         gpu + predicted          host             storage            n
    |──────── free ────────|── load back ──|── fetch ──|── prefill ────────|
                                                       at least one token ─┘
"""

from typing import NamedTuple

from indexer.match import RankMatch
from indexer.trust import Trust
from protocol import DEFAULT_PREFETCH_THRESHOLD
from scoring.rates import CostRates

DOUBTFUL_SHARE = 0.5
"""What a matched token counts on a rank whose trust is ``degraded`` or ``stale``: its claims are as
likely gone as there, and the engine never announces the hits that would tell."""

ANSWER_TOKENS = 8
"""How many tokens of the answer the decode term looks at: what a reader sees as its beginning."""

_DEGRADED, _STALE = Trust.DEGRADED, Trust.STALE


class Hit(NamedTuple):
    """Prompt tokens that a rank is counted on to reuse, by where they lie; predicted ones on GPU."""

    gpu: float
    host: float
    storage: float


class PromptCost(NamedTuple):
    """What a prompt alone costs on a rank, whatever else the rank is busy with.

    Attributes:
        ms: sum of the three terms.
        uncached_tokens: to be prefilled.
        work: the same stretched by attention, in tokens at the short-prompt rate.
        hit: what is reused; ``storage`` is 0 where it is not worth fetching.
    """

    ms: float
    prefill_ms: float
    load_back_ms: float
    fetch_ms: float
    uncached_tokens: float
    work: float
    hit: Hit


class Price(NamedTuple):
    """One rank's cost: the sum of the five terms."""

    cost_ms: float
    queue_ms: float
    decode_ms: float
    prompt: PromptCost


NO_HIT = Hit(0.0, 0.0, 0.0)


def usable_hit(match: RankMatch, prompt_tokens: int) -> Hit:
    """What of a match the engine will reuse.

    An engine recomputes at least the last token of a prompt, hence the whole last block of a prompt
    that ends on a block boundary; the last blocks of the run are cut off first. Claims of a doubtful
    rank count `DOUBTFUL_SHARE`; what we predicted ourselves is not in doubt.

    Source: vLLM 0.32.0 and SGLang 0.5.23, prefix match over n − 1 tokens.
    """
    gpu: float = match.gpu_blocks
    host: float = match.host_pinned_blocks
    storage: float = match.storage_blocks
    predicted: float = match.predicted_blocks
    size, trust = match.block_size, match.trust
    if not (gpu or host or storage or predicted):
        return NO_HIT
    if trust is _DEGRADED or trust is _STALE:
        gpu, host, storage = gpu * DOUBTFUL_SHARE, host * DOUBTFUL_SHARE, storage * DOUBTFUL_SHARE
    excess = gpu + host + storage + predicted - (prompt_tokens - 1) // size
    if excess > 0:
        cut = min(excess, predicted)
        predicted, excess = predicted - cut, excess - cut
        cut = min(excess, storage)
        storage, excess = storage - cut, excess - cut
        cut = min(excess, host)
        host, excess = host - cut, excess - cut
        gpu = max(gpu - excess, 0)
    return Hit((gpu + predicted) * size, host * size, storage * size)


def prompt_cost(
    rates: CostRates,
    prompt_tokens: int,
    hit: Hit,
    fetch_threshold: int = DEFAULT_PREFETCH_THRESHOLD,
) -> PromptCost:
    """Cost of one prompt on an idle rank. O(1).

    Args:
        prompt_tokens: length of the prompt; 0 where it is not known, which leaves load alone.
        fetch_threshold: tokens; the engine does not fetch shorter storage hits.
    """
    per_token = rates.prefill_ms_per_token
    gpu, host, storage = hit
    uncached = prompt_tokens - gpu - host - storage
    work = _work(rates, uncached, prompt_tokens)
    fetch_ms = storage * rates.fetch_ms_per_token
    if storage:
        without = _work(rates, uncached + storage, prompt_tokens)
        is_too_short = storage < fetch_threshold
        if is_too_short or work * per_token + fetch_ms >= without * per_token:
            uncached, work, fetch_ms = uncached + storage, without, 0.0
            hit = Hit(gpu, host, 0.0)
    prefill_ms = work * per_token
    load_back_ms = host * rates.load_back_ms_per_token
    ms = prefill_ms + load_back_ms + fetch_ms
    return PromptCost(ms, prefill_ms, load_back_ms, fetch_ms, uncached, work, hit)


def price(
    rates: CostRates,
    prompt: PromptCost,
    *,
    queued_work: int,
    in_flight: int,
    answer_tokens: int = ANSWER_TOKENS,
) -> Price:
    """Cost of one prompt on a rank that is busy with others. O(1).

    Args:
        queued_work: prefill work booked on the rank, in tokens at the short-prompt rate.
        in_flight: requests on the rank; each of them is in the batch when this one decodes.
        answer_tokens: what the answer may have at most, as far as the decode term looks.
    """
    queue_ms = queued_work * rates.prefill_ms_per_token
    decode_ms = in_flight * rates.decode_ms_per_request * answer_tokens
    return Price(queue_ms + prompt.ms + decode_ms, queue_ms, decode_ms, prompt)


def _work(rates: CostRates, uncached: float, prompt_tokens: int) -> float:
    """Prefill of the last ``uncached`` tokens, in tokens at the short-prompt rate."""
    return uncached * (1 + (prompt_tokens - uncached / 2) / rates.attention_doubling_tokens)
