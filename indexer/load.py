"""A dump back into an index, line by line; each rank as a whole or not at all.

Only one line is ever there at a time. A line that is wrong, or the dump's end in the middle of a rank, ends
the load: the rank that was under way is forgotten, those before it stay. So does a rank that is under way
and no longer there to be filled: its worker was removed, or what was known of it forgotten.
"""

from collections import Counter
from collections.abc import Callable
from typing import assert_never

from indexer.actions import ForgetReason
from indexer.dump_format import (
    FORMAT,
    MAX_LINE_BYTES,
    DumpError,
    EndLine,
    HeaderLine,
    Line,
    LoadSkip,
    RankEndLine,
    RankLine,
    read_line,
)
from indexer.fleet_index import FleetIndex
from indexer.rank_load import RankLoad
from protocol import Rank, WorkerId

_MAX_RANKS = 1 << 16


class IndexLoad:
    """One dump on its way in. To be fed with every line, then told of the end.

    Args:
        is_wanted: which ranks to load. A dump of more than 65,536 ranks is refused.

    Attributes:
        loaded: the ranks that are whole, as the dump describes them.
        skipped: those that were left out, by reason.
    """

    def __init__(
        self, index: FleetIndex, now: float, is_wanted: Callable[[RankLine], bool] = lambda _: True
    ) -> None:
        self._index = index
        self._now = now
        self._is_wanted = is_wanted
        self._num_lines = 0
        self._has_header = False
        self._is_over = False
        self._line: RankLine | None = None  # of the rank under way
        self._load: RankLoad | None = None  # None: it is left out
        self._ranks: set[Rank] = set()
        self.loaded: list[RankLine] = []
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
        """Forget the rank under way."""
        load, self._load, self._line = self._load, None, None
        if load is not None and self._index.is_loading(load):
            self._index.forget(load.book.rank, ForgetReason.LOAD_FAILED, self._now)

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
                num_ranks = len(self.loaded) + self.skipped.total()
                if self._line is not None or line.ranks != num_ranks:
                    raise DumpError(f"{num_ranks} ranks are there, not {line.ranks}")
                self._is_over = True
            case RankLine():
                if self._line is not None:
                    raise DumpError("a rank begins before the last one has ended")
                self._begin_rank(line)
            case _ if self._line is None:
                raise DumpError(f"{line.kind} outside a rank")
            case RankEndLine():
                load = self._under_way()
                if load is not None:
                    load.finish(line)
                    self.loaded.append(self._line)
                self._load = self._line = None
            case _:
                load = self._under_way()
                if load is not None:
                    load.add(line)

    def _under_way(self) -> RankLoad | None:
        """What the next line goes to; None where the rank is left out."""
        if self._load is not None and not self._index.is_loading(self._load):
            raise DumpError("the rank was removed or forgotten while it was loaded")
        return self._load

    def _begin(self, line: Line) -> None:
        if not isinstance(line, HeaderLine):
            raise DumpError("the dump does not begin with a header")
        if line.format != FORMAT:
            raise DumpError(f"format {line.format}; this version reads {FORMAT}")
        self._has_header = True

    def _begin_rank(self, line: RankLine) -> None:
        rank = Rank(WorkerId(line.worker), line.dp_rank)
        if rank in self._ranks:
            raise DumpError("the rank is told a second time")
        if len(self._ranks) >= _MAX_RANKS:
            raise DumpError(f"more than {_MAX_RANKS} ranks")
        self._ranks.add(rank)
        self._line = line
        found: RankLoad | LoadSkip = LoadSkip.NOT_WANTED
        if self._is_wanted(line):
            found = self._index.begin_load(line, self._now)
        match found:
            case RankLoad():
                self._load = found
            case LoadSkip():
                self.skipped[found] += 1
            case _:
                assert_never(found)
