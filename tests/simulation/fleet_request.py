"""A request of the simulation: as the router sees it, as the engine sees it, and while it is under way."""

from dataclasses import dataclass

from indexer import Prompt, RankMatch
from protocol import pack_tokens
from worker.request import Usage
from worker.tree import CacheKey

MODEL = "m"
ADAPTERS: dict[str | None, str] = {"ad-ns": "ad"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request's tokens and namespace."""

    tokens: tuple[int, ...]
    extra_key: str | None
    salt: str | None

    @property
    def prompt(self) -> Prompt:
        """As the router sees it."""
        return Prompt(pack_tokens(self.tokens), MODEL, ADAPTERS.get(self.extra_key), self.salt)

    @property
    def key(self) -> CacheKey:
        """As the engine sees it."""
        return CacheKey(self.tokens, self.extra_key, self.salt)


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request under way."""

    ask: Ask
    prompt: Prompt
    at_decision: RankMatch
    decided_at: float
    usage: Usage | None = None
