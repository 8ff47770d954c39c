"""Which purges of a rank a replay from 0 may undo, and when it is to be asked for.

Reports prove that claims were wrong. Where events were late or missing while the rank was served, they tell how it
is, and most of what the purge dropped is true: a full replay brings it back. Where the engine lost its
cache in silence, its events tell of what is gone: a replay would bring back nothing but that.

    contradiction                           wanted
    silent clear, nothing stored            wanted: it may be the events that are silent
    silent clear, prompts stored anew       not wanted, nor at any later purge: events from before are false

After one rebuild the next one is wanted no sooner than ``every_s`` later, and after a report that agreed: what
is contradicted all the same stays purged.
"""

from indexer.shortfalls import Row, Wrong


class Purges:
    """Of one rank. All operations O(row)."""

    __slots__ = ("_every_s", "_is_open", "_is_past_false", "_rebuilt_at")

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._is_open = False  # claims were purged, and nothing has taken their place
        self._is_past_false = False  # events from before a silent clear are false
        self._rebuilt_at: float | None = None

    def note(self, wrong: Wrong, row: Row) -> None:
        """All claims were dropped because of these reports."""
        if wrong is Wrong.SILENT_CLEAR and row.is_storing:
            self._is_past_false = True
        self._is_open = not self._is_past_false

    def wants_rebuild(self, now: float, *, is_contradicted: bool) -> bool:
        """Whether to ask for all events from the start.

        Args:
            is_contradicted: no report has agreed since the purge.
        """
        if not self._is_open or self._rebuilt_at is None:
            return self._is_open
        return not is_contradicted and now - self._rebuilt_at >= self._every_s

    def note_rebuilt(self, now: float) -> None:
        """A replay takes the place of all claims."""
        if self._is_open:
            self._is_open, self._rebuilt_at = False, now

    def clear(self) -> None:
        """The rank is empty, or another one: there is nothing to bring back."""
        self._is_open = self._is_past_false = False
        self._rebuilt_at = None
