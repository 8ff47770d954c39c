"""The finding on engines that make other tokens than the router when they are asked."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from indexer.findings import Finding, FindingKind
from protocol import Rank, WorkerSpec

TOKENS_DIFFER_SEEN = (
    "An engine's /tokenize makes other tokens of a short text or chat than the tokenizer and template that the router "
    "has for its model."
)
TOKENS_DIFFER_ADVICE = (
    "Give the router the engine's own tokenizer.json and chat template: tokenizers, or --tokenizer MODEL=DIR; a template "
    "of --chat-template goes there as chat_template.jinja. Until then the engine is asked for each prompt's tokens, or "
    "requests go by load."
)
_MAX_RANKS = 64


class Difference(NamedTuple):
    """What one worker showed, and since when, monotonic seconds."""

    spec: WorkerSpec
    since: float
    text: str


def tokenizer_findings(differences: Sequence[Difference]) -> Iterator[Finding]:
    """One finding for all workers that differ, if there are any; the first is the example. O(ranks)."""
    if not differences:
        return
    ranks = [rank for one in differences for rank in one.spec.ranks]
    first = differences[0]
    evidence: dict[str, int | float | str] = {
        "num_ranks": len(ranks),
        "model": first.spec.model,
        "difference": first.text,
    }
    since = min(one.since for one in differences)
    shown: tuple[Rank, ...] = tuple(ranks[:_MAX_RANKS])
    yield Finding(FindingKind.TOKENS_DIFFER, since, shown, evidence, TOKENS_DIFFER_ADVICE)
