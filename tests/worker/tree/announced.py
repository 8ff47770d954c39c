"""A listener that believes events: what each medium holds by what was published so far."""

from collections import Counter
from collections.abc import Sequence

from protocol import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash, KvEvent
from worker.tree import Residency

Page = tuple[str, str | None, EngineHash]


def pages(events: Sequence[KvEvent]) -> list[Page]:
    """Events page by page, so that merging plays no part: (kind, medium, hash)."""
    flat: list[Page] = []
    for event in events:
        match event:
            case BlockStored(hashes, medium=medium):
                flat += [("store", medium, block_hash) for block_hash in hashes]
            case BlockRemoved(hashes, medium):
                flat += [("remove", medium, block_hash) for block_hash in hashes]
            case AllBlocksCleared():
                flat.append(("clear", None, 0))
    return flat


class Announced:
    """Folds events strictly: a store of what is there, a removal of what is not, or a store whose
    parent is nowhere, or not the page before it, is an error."""

    def __init__(self) -> None:
        self.held: dict[str | None, set[EngineHash]] = {"GPU": set(), "CPU_PINNED": set()}
        self._before: dict[EngineHash, EngineHash | None] = {}

    def know(self, chain: Sequence[EngineHash], before: EngineHash | None = None) -> None:
        """These pages follow one another; ``before`` is the one before the first, None at the start of a prompt."""
        self._before.update(zip(chain, (before, *chain), strict=False))

    def hear(self, events: Sequence[KvEvent]) -> None:
        """Fold one batch."""
        for event in events:
            match event:
                case BlockStored(hashes, parent, medium=medium):
                    assert parent is None or any(parent in held for held in self.held.values())
                    assert Counter(hashes).most_common(1)[0][1] == 1
                    assert [self._before[one] for one in hashes] == [parent, *hashes[:-1]]
                    assert not self.held[medium] & set(hashes), "stored twice"
                    self.held[medium] |= set(hashes)
                case BlockRemoved(hashes, medium):
                    assert set(hashes) <= self.held[medium], "removed, never announced"
                    self.held[medium] -= set(hashes)
                case AllBlocksCleared():
                    for held in self.held.values():
                        held.clear()

    def check(self, truth: Residency) -> None:
        """What was announced is what is readable."""
        assert self.held["GPU"] == set(truth.device)
        assert self.held["CPU_PINNED"] == set(truth.host)
