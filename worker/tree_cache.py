"""SGLang's cache of one rank: the tree core, the requests on it, and the copies between its tiers."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from protocol import EngineHash, EngineModel, KvEvent
from worker.backups import BackupQueue
from worker.host_buffer import HostBuffer
from worker.prefetch import PrefetchCounters, Prefetcher, PrefetchLimits, PrefetchSkip
from worker.request import EngineRequest, Sequence
from worker.sequence_cache import Hold, SequenceCache
from worker.staged_reads import ReadState
from worker.staged_writes import WriteDrop
from worker.storage import Storage
from worker.tree import CacheKey, StoragePage, TreeConfig, TreeCore


class TreeCache:
    """An ``EngineCache`` over the tree core.

    Attributes:
        prefetcher: None where there is no storage, or no host tier for what it holds.
        backups: copies to host in flight.
        buffer: in their place where host only stages; None where it is a cache, or there is no storage.
    """

    def __init__(
        self,
        config: TreeConfig,
        model: EngineModel,
        limits: PrefetchLimits,
        storage: Storage | None = None,
    ) -> None:
        self.tree = TreeCore(config)
        self.prefetcher: Prefetcher | None = None
        if storage is not None and config.has_host_tier:
            self.prefetcher = Prefetcher(self.tree, storage, model, limits)
        self.backups = BackupQueue(self.tree, storage, model)
        self.buffer: HostBuffer | None = None
        if storage is not None and config.host_tokens is not None and not config.has_host_tier:
            self.buffer = HostBuffer(self.tree, storage, model, limits)
        self._sequences = SequenceCache(self.tree, self.buffer)
        self._holds: dict[str, Hold] = {}

    @property
    def capacity(self) -> int:
        """Device slots that one request can have at most."""
        return self._sequences.capacity

    @property
    def usage(self) -> float:
        """Share of the device pool in use, cached tokens included."""
        return self.tree.device.held / self.tree.device.capacity

    @property
    def is_settled(self) -> bool:
        """Whether no copy to host is in flight, and no write to storage by way of it waits."""
        return not self.backups and not (self.buffer is not None and self.buffer.writes)

    @property
    def num_events(self) -> int:
        """Events that wait for ``take_events``."""
        return self.tree.num_events

    def slots_needed(self, num_tokens: int) -> int:
        """Device slots of so many tokens, in whole pages."""
        return self._sequences.slots_needed(num_tokens)

    def arrive(self, sequence: Sequence, now: float) -> None:
        """Fetch from storage what it holds of the prompt and the tree does not."""
        hold = self._holds[sequence.id] = Hold()
        if self.prefetcher is not None:
            hold.prefetch = self.prefetcher.issue(sequence.key(sequence.num_prompt), now)
        if self.buffer is not None:
            hold.read = self.buffer.reads.issue(sequence.key(sequence.num_prompt), now)

    def is_ready(self, sequence: Sequence) -> bool:
        """Whether its fetch is over."""
        hold = self._holds[sequence.id]
        has_read = hold.read is None or hold.read.state is ReadState.OVER
        return hold.prefetch is None and has_read

    def admit(self, sequence: Sequence, headroom: int) -> bool:
        """Lock and reserve; see ``SequenceCache.admit``."""
        return self._sequences.admit(sequence, self._holds[sequence.id], headroom)

    def plan(self, sequence: Sequence, num_tokens: int) -> bool:
        """Have a slot for the next token; those of a prefill are reserved."""
        hold = self._holds[sequence.id]
        if sequence.computed + num_tokens <= hold.locked_tokens + hold.owned_tokens:
            return True
        return self._sequences.grow(hold)

    def extend(self, sequence: Sequence) -> None:
        """Cache the whole pages computed so far."""
        self._sequences.extend(sequence, self._holds[sequence.id])

    def retract(self, sequence: Sequence) -> None:
        """Unlock, and give back its own slots."""
        self._sequences.retract(sequence, self._holds[sequence.id])

    def end(self, sequence: Sequence) -> None:
        """Cache what was computed, and drop a fetch that nobody waits for any more."""
        hold = self._holds.pop(sequence.id, None)
        if hold is None:
            return
        if hold.prefetch is not None and self.prefetcher is not None:
            self.prefetcher.drop(hold.prefetch)
        self._sequences.end(sequence, hold)
        if hold.read is not None and self.buffer is not None:
            self.buffer.reads.drop(hold.read)

    def note(self, now: float) -> None:
        """Take up the copies to host that the tree has issued since."""
        self.backups.note(now)
        if self.buffer is not None:
            self.buffer.note(now)

    def settle(self, now: float) -> bool:
        """Acknowledge the copies that are complete, and end the fetches that are due."""
        has_settled = self.backups.acknowledge_due(now)
        if self.buffer is not None:
            return self.buffer.settle(now) or has_settled
        if self.prefetcher is None:
            return has_settled
        for hold in self._holds.values():
            prefetch = hold.prefetch
            if prefetch is not None and self.prefetcher.is_due(prefetch, now):
                hold.refilled_tokens = self.prefetcher.settle(prefetch, now)
                hold.prefetch = None
                has_settled = True
        return has_settled

    def next_due(self) -> float | None:
        """When the next copy or fetch is due."""
        due = [self.backups.next_due()]
        if self.prefetcher is not None:
            due.append(self.prefetcher.next_due())
        if self.buffer is not None:
            due.append(self.buffer.next_due())
        return min((time for time in due if time is not None), default=None)

    def reset(self, *, keeps_host: bool = False) -> None:  # noqa: ARG002  # no tier is apart
        """Empty the tree with all its tiers; copies in flight are void."""
        self.tree.reset()
        self.backups.clear()
        if self.buffer is not None:
            self.buffer.clear()

    def take_events(self) -> list[KvEvent]:
        """Hand over what the tree has recorded."""
        return self.tree.take_events()

    def lookup_pages(self, request: EngineRequest) -> list[StoragePage]:
        """Every page that a fetch for the request may ask for."""
        fetches = self.prefetcher if self.buffer is None else self.buffer.reads
        if fetches is None:
            return []
        key = CacheKey(request.prompt, request.extra_key, request.cache_salt)
        return fetches.lookup_pages(key)

    def residency(self) -> Mapping[str, Iterable[EngineHash]]:
        """Event hashes by medium, and those of copies in flight, which are announced by none."""
        truth = self.tree.residency()
        return {
            "GPU": truth.device,
            "CPU_PINNED": truth.host,
            "CPU_PINNED_in_flight": truth.host_in_flight,
        }

    def pools(self) -> Mapping[str, int]:
        """Device and host pool, and what fetches and staged writes under way have reserved of the latter."""
        device, host = self.tree.device, self.tree.host
        return {
            "gpu_capacity": device.capacity,
            "gpu_free": device.free,
            "host_capacity": host.capacity if host is not None else 0,
            "host_free": host.free if host is not None else 0,
            "storage_fetches_in_flight_tokens": self._fetched_tokens(),
            "storage_writes_staged_tokens": self.buffer.writes.staged_tokens
            if self.buffer is not None
            else 0,
        }

    def counters(self) -> dict[str, int]:
        """What tree, copies and fetches have counted."""
        tree = asdict(self.tree.counters)
        values: dict[str, int] = {f"tree_{name}": value for name, value in tree.items()}
        values["tokens_refilled"] = self.tree.counters.refilled
        values["storage_tokens_written"] = self.backups.stored_tokens
        dropped: Mapping[WriteDrop, int] = {}
        read = PrefetchCounters() if self.prefetcher is None else self.prefetcher.counters
        if self.buffer is not None:
            read, dropped = self.buffer.reads.counters, self.buffer.writes.dropped
            values["tokens_refilled"] = read.refilled_tokens
            values["storage_tokens_written"] = self.buffer.writes.stored_tokens
        values |= {f"storage_writes_dropped_{why}": dropped.get(why, 0) for why in WriteDrop}
        return values | _prefetch_counters(read)

    def check(self) -> None:
        """Verify tree, copies and fetches, and that every slot in use is a page of the tree or belongs
        to a request or a fetch."""
        self.tree.check()
        self.backups.check()
        if self.prefetcher is not None:
            self.prefetcher.check()
        if self.buffer is not None:
            self.buffer.check()
        residency, size = self.tree.residency(), self.tree.config.page_size
        for hold in self._holds.values():
            assert hold.node is not None or not hold.num_tokens, "slots without a place in the tree"
            above = hold.node.path() if hold.node is not None else ()
            locked = sum(len(node.pages) for node in above) * size
            assert locked == hold.locked_tokens, f"{locked} locked, not {hold.locked_tokens}"
        owned = sum(hold.owned_tokens for hold in self._holds.values())
        held, cached = self.tree.device.held, len(residency.device) * size
        assert held == cached + owned, f"{held} held, {cached} cached + {owned} owned"
        if self.tree.host is not None:
            cached = (len(residency.host) + len(residency.host_in_flight)) * size
            staged = self.buffer.writes.staged_tokens if self.buffer is not None else 0
            held, under_way = self.tree.host.held, self._fetched_tokens() + staged
            assert held == cached + under_way, f"{held} held, {cached} cached + {under_way} staged"
            self._check_reads()

    def _fetched_tokens(self) -> int:
        if self.buffer is not None:
            return self.buffer.reads.held_tokens
        return 0 if self.prefetcher is None else self.prefetcher.in_flight_tokens

    def _check_reads(self) -> None:
        """Every slot that reads hold belongs to a request."""
        reads = [hold.read for hold in self._holds.values() if hold.read is not None]
        owned = sum(read.num_tokens for read in reads if read.state is not ReadState.PARKED)
        held = self.buffer.reads.held_tokens if self.buffer is not None else 0
        assert held == owned, f"{held} host slots held by reads, {owned} owned by requests"


def _prefetch_counters(read: PrefetchCounters) -> dict[str, int]:
    skipped = {f"prefetches_skipped_{reason}": read.skipped[reason] for reason in PrefetchSkip}
    return skipped | {
        "prefetches": read.issued,
        "storage_tokens_fetched": read.fetched_tokens,
        "storage_tokens_abandoned": read.abandoned_tokens,
    }
