"""A dump back into an index, line by line; each rank, and each pool's own events, as a whole or not at all.

Only one line is ever there at a time. A line that is wrong, or the dump's end in the middle of a rank, ends
the load: the rank that was under way is forgotten, those before it stay. So does a rank that is under way
and no longer there to be filled: its worker was removed, or what was known of it forgotten. The same holds
for storage pools, which come after the ranks.
"""

from collections import Counter
from collections.abc import Callable

from indexer.actions import ForgetReason
from indexer.dump_format import (
    FORMAT,
    MAX_LINE_BYTES,
    READABLE,
    DumpError,
    EndLine,
    HeaderLine,
    Line,
    LoadSkip,
    PoolEndLine,
    PoolLine,
    RankEndLine,
    RankLine,
    read_line,
)
from indexer.fleet_index import FleetIndex
from indexer.pool_load import PoolLoad
from indexer.rank_load import RankLoad
from protocol import Rank, StoragePool, WorkerId

_MAX_RANKS = 1 << 16


class IndexLoad:
    """One dump on its way in. To be fed with every line, then told of the end.

    Args:
        is_wanted: which ranks to load, and of which pools what their own events have told. A dump of more than 65,536
            ranks and pools is refused.

    Attributes:
        loaded: the ranks that are whole, as the dump describes them.
        pools: the pools of which all that their own events have told is there, likewise.
        num_filled: pools that were filled with anything.
        skipped: ranks and pools that were left out, by reason.
    """

    def __init__(
        self,
        index: FleetIndex,
        now: float,
        is_wanted: Callable[[RankLine | PoolLine], bool] = lambda _: True,
    ) -> None:
        self._index = index
        self._now = now
        self._is_wanted = is_wanted
        self._num_lines = 0
        self._has_header = False
        self._is_over = False
        self._line: RankLine | PoolLine | None = None  # of the rank or pool under way
        self._load: RankLoad | PoolLoad | None = None  # None: it is left out
        self._told: set[Rank | StoragePool] = set()
        self._num_pools = 0
        self.loaded: list[RankLine] = []
        self.pools: list[PoolLine] = []
        self.num_filled = 0
        self.skipped: Counter[LoadSkip] = Counter()

    def feed(self, raw: bytes) -> None:
        """One line; O(its blocks).

        Raises:
            DumpError: it is wrong. The rank under way is forgotten, and nothing more may be fed.
        """
        self._num_lines += 1
        try:
            self._take(self._read(raw))
        except DumpError as error:
            self.abort()
            if str(error).startswith("line "):
                raise
            raise DumpError(f"line {self._num_lines}: {error}") from error

    def finish(self) -> None:
        """There are no more lines.

        Raises:
            DumpError: the dump is cut short. What was whole stays.
        """
        self.abort()
        if not self._is_over:
            raise DumpError(f"the dump ends after line {self._num_lines}, before its end")

    def abort(self) -> None:
        """Forget the rank or pool under way."""
        load, self._load, self._line = self._load, None, None
        match load:
            case RankLoad() if self._index.is_loading(load):
                self._index.forget(load.book.rank, ForgetReason.LOAD_FAILED, self._now)
            case PoolLoad() if load.takes_events and self._index.pools.is_loading(load):
                load.book.forget(self._now)

    def _read(self, raw: bytes) -> Line:
        if len(raw) > MAX_LINE_BYTES:
            raise DumpError(f"longer than {MAX_LINE_BYTES} bytes")
        return read_line(raw, self._num_lines)

    def _take(self, line: Line) -> None:
        if self._is_over:
            raise DumpError("there is more behind the end")
        if not self._has_header:
            self._begin(line)
            return
        match line:
            case HeaderLine():
                raise DumpError("a second header")
            case EndLine():
                self._end(line)
            case RankLine() | PoolLine():
                self._begin_one(line)
            case RankEndLine():
                self._end_rank(line)
            case PoolEndLine():
                self._end_pool(line)
            case _ if self._line is None:
                raise DumpError(f"{line.kind} outside a rank or pool")
            case _:
                load = self._under_way()
                if load is not None:
                    load.add(line)

    def _under_way(self) -> RankLoad | PoolLoad | None:
        """What the next line goes to; None where the rank or pool is left out."""
        match self._load:
            case RankLoad() as load if not self._index.is_loading(load):
                raise DumpError("the rank was removed or forgotten while it was loaded")
            case PoolLoad() as load if not self._index.pools.is_loading(load):
                raise DumpError("the pool was left or forgotten while it was loaded")
        return self._load

    def _end_rank(self, line: RankEndLine) -> None:
        if not isinstance(self._line, RankLine):
            raise DumpError("rank_end outside a rank")
        load = self._under_way()
        if isinstance(load, RankLoad):
            load.finish(line)
            self.loaded.append(self._line)
        self._load = self._line = None

    def _end_pool(self, line: PoolEndLine) -> None:
        if not isinstance(self._line, PoolLine):
            raise DumpError("pool_end outside a pool")
        load = self._under_way()
        if isinstance(load, PoolLoad):
            load.finish(line)
            self.num_filled += 1
            if load.takes_events:
                self.pools.append(self._line)
        self._load = self._line = None

    def _end(self, line: EndLine) -> None:
        num_ranks = len(self._told) - self._num_pools
        if self._line is not None or line.ranks != num_ranks:
            raise DumpError(f"{num_ranks} ranks are there, not {line.ranks}")
        if line.pools != self._num_pools:
            raise DumpError(f"{self._num_pools} pools are there, not {line.pools}")
        self._is_over = True

    def _begin(self, line: Line) -> None:
        if not isinstance(line, HeaderLine):
            raise DumpError("the dump does not begin with a header")
        if line.format not in READABLE:
            raise DumpError(f"format {line.format}; this version reads up to {FORMAT}")
        self._has_header = True

    def _begin_one(self, line: RankLine | PoolLine) -> None:
        if self._line is not None:
            raise DumpError(f"a {line.kind} begins before the last one has ended")
        is_rank = isinstance(line, RankLine)
        one = Rank(WorkerId(line.worker), line.dp_rank) if isinstance(line, RankLine) else line.pool
        if one in self._told:
            raise DumpError(f"the {line.kind} is told a second time")
        if len(self._told) >= _MAX_RANKS:
            raise DumpError(f"more than {_MAX_RANKS} ranks and pools")
        self._told.add(one)
        self._num_pools += not is_rank
        self._line = line
        found = self._begin_load(line)
        if isinstance(found, LoadSkip):
            self.skipped[found] += 1
        else:
            self._load = found

    def _begin_load(self, line: RankLine | PoolLine) -> RankLoad | PoolLoad | LoadSkip:
        if isinstance(line, PoolLine):
            takes_events = self._is_wanted(line)
            return self._index.pools.begin_load(line, self._now, takes_events=takes_events)
        if not self._is_wanted(line):
            return LoadSkip.NOT_WANTED
        return self._index.begin_load(line, self._now)
