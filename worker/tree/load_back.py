"""Copies from host back to the device: committed and announced at once, pinned until complete."""

from worker.tree.node import Node
from worker.tree.pressure import Pressure
from worker.tree.residence import Residence
from worker.tree.results import LoadBack, Match, TreeCounters
from worker.tree.structure import Structure
from worker.tree.tier import CopyTier


class LoadBacks:
    """Copies in flight to the device; bounded by the device pool, from which each takes its slots."""

    def __init__(
        self,
        structure: Structure,
        residence: Residence,
        pressure: Pressure,
        counters: TreeCounters,
    ) -> None:
        self._structure = structure
        self._residence = residence
        self._pressure = pressure
        self._counters = counters
        self._running: dict[int, LoadBack] = {}

    def start(self, match: Match) -> LoadBack | None:
        """Load the host-only nodes of a match, top down."""
        if match.node.is_dead:
            return None
        missing = [node for node in match.node.path() if not node.is_on_device][::-1]
        num_tokens = sum(map(self._structure.num_tokens, missing))
        if not missing or num_tokens < self._structure.config.load_back_threshold:
            return None
        if not self._take_slots(missing, num_tokens):
            return None
        load_back = LoadBack(self._structure.begin_copy(missing), num_tokens, match.node)
        for node in missing:
            self._residence.arrive(node, CopyTier.DEVICE)
        self._structure.lock(match.node)
        self._running[load_back.id] = load_back
        self._counters.loaded_back += num_tokens
        return load_back

    def finish(self, load_back: LoadBack) -> None:
        """The copy is complete."""
        if self._running.pop(load_back.id, None) is None:
            raise ValueError("no such copy in flight")
        self._structure.end_copy(load_back.id)
        self._structure.unlock(load_back.node)

    def _take_slots(self, missing: list[Node], num_tokens: int) -> bool:
        """Take device slots while what is to be loaded, and the prefix it continues, stay."""
        above = missing[0].parent
        assert above is not None, "the root is on the device"
        lowest = missing[-1]
        self._structure.lock(above)
        self._structure.lock_host(lowest)
        try:
            return self._pressure.take_device(num_tokens)
        finally:
            self._structure.unlock_host(lowest)
            self._structure.unlock(above)
