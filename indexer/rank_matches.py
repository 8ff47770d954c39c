"""What each rank of a lookup holds of a prompt: one search a key space, the longest run a rank."""

from indexer.block_index import BlockIndex
from indexer.lookups import Lookup, Search
from indexer.match import Prompt, RankMatch, match_of
from indexer.prefix_walk import Run
from indexer.prompt_blocks import PromptBlocks
from indexer.rank_book import DEFAULT_BLOCK_SIZE
from indexer.trust import Trust

_NO_RUN = Run()
_UNKNOWN = RankMatch(Trust.NONE, DEFAULT_BLOCK_SIZE)


def rank_matches(lookup: Lookup, index: BlockIndex, prompt: Prompt, now: float) -> list[RankMatch]:
    """The longest match of each rank, in tokens, in the order of the lookup's ranks.

    Ranks with the same run share one value. O(blocks + changes of holders + ranks).
    """
    best: dict[int, tuple[int, Run]] = {}
    for search in lookup.searches:
        _search(index, prompt.blocks(search.geometry), search, best)
    matches: list[RankMatch] = []
    made: dict[int, RankMatch] = {}  # by identity of the run
    for book in lookup.books:
        if book is None:
            matches.append(_UNKNOWN)
            continue
        trust = book.trust(now)
        found = best.get(book.slot)
        size, run = (book.geometry[0], _NO_RUN) if found is None else found
        match = made.get(id(run))
        if match is None or match.trust is not trust or match.block_size != size:
            match = made[id(run)] = match_of(run, size, trust)
        matches.append(match)
    return matches


def _search(
    index: BlockIndex, blocks: PromptBlocks, search: Search, best: dict[int, tuple[int, Run]]
) -> None:
    """Look up some slots in one key space; keep what is longer than before."""
    size = blocks.block_size
    _, watched, gpu_first, pools = search
    space = index.find(blocks.key_space)
    if space is None:
        return
    found = index.match(blocks.runs(index, space), watched, gpu_first, pools)
    for slot, run in found.items():
        before = best.get(slot)
        if before is None or run.length * size > before[1].length * before[0]:
            best[slot] = (size, run)
