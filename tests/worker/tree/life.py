"""One core with a listener, and what its engine would have to remember: the subject of random tests."""

from protocol import KvEvent
from tests.worker.tree.announced import Announced
from worker.tree import CacheKey, LoadBack, Node, TreeConfig, TreeCore
from worker.tree.page_hash import chain_digests, namespace_of, split_pages

ADAPTERS = {"a": "adapter"}
NAMESPACES = [(None, None), (None, "salt"), ("a", None), ("a", "salt")]


class Life:
    """Handles are picked by position, so that two lives given the same steps stay comparable."""

    def __init__(self, config: TreeConfig) -> None:
        self.core = TreeCore(config)
        self.announced = Announced()
        self.locked: list[Node] = []
        self.loading: list[LoadBack] = []
        self.anchored: list[tuple[Node, CacheKey]] = []

    def key(self, run: list[int], namespace: int = 0, extra: int = 0) -> CacheKey:
        """Pages of equal tokens each, one per entry of ``run``, and ``extra`` tokens beyond."""
        size = self.core.config.page_size
        tokens = [symbol for symbol in run for _ in range(size)]
        tokens += [7] * (extra + int(self.core.config.is_eagle))
        extra_key, salt = NAMESPACES[namespace]
        key = CacheKey(tuple(tokens), extra_key, salt)
        self.announced.know([page.event_hash for page in self.core.page_hashes(key)])
        return key

    def insert(self, key: CacheKey, priority: int = 0) -> None:
        """Cache a key with slots from the pool, unless the pool cannot hold it."""
        try:
            result = self.core.insert(key, priority=priority)
        except ValueError:
            return
        match = self.core.match(key)
        assert match.device_tokens >= result.device_tokens
        if self.core.config.sliding_window is None:
            assert match.tokens == self.core.config.page_size * len(self.core.page_hashes(key))

    def insert_owned(self, key: CacheKey, more: int) -> None:
        """A request's life: lock its match, own slots for the rest and ``more``, cache, unlock."""
        match = self.core.match(key)
        self.core.lock(match.device_node)
        owned = len(key.tokens) - match.device_tokens + more
        if self.core.reserve(owned):
            result = self.core.insert(key, owned_tokens=owned)
            assert result.device_tokens + result.released_tokens == owned
        self.core.unlock(match.device_node)

    def load_back(self, key: CacheKey) -> None:
        """Start to load what is on host only."""
        match = self.core.match(key)
        load_back = self.core.load_back(match)
        if load_back is None:
            return
        assert load_back.num_tokens == match.host_tokens
        assert self.core.match(key).device_tokens >= match.tokens
        self.loading.append(load_back)

    def anchor(self, run: list[int], namespace: int, cut: int) -> None:
        """Reserve host slots for a refill of what follows ``cut`` pages of ``run``."""
        if not self.core.config.has_host_tier:
            return
        node = self.core.match(self.key(run[:cut], namespace)).node
        key = self.key(run[cut:], namespace)
        num_tokens = len(self.core.page_hashes(key)) * self.core.config.page_size
        if self.core.reserve_host(num_tokens):
            self.core.lock_host(node)
            self.anchored.append((node, key))
            self._know_below(node, key)

    def _know_below(self, anchor: Node, key: CacheKey) -> None:
        """The pages of a key that follows an anchor, which may hold less than was looked for."""
        if anchor.is_root:
            return
        config, (extra_key, salt) = self.core.config, (key.extra_key, key.cache_salt)
        pages = split_pages(key.tokens, config.page_size, is_eagle=config.is_eagle)
        digests = [anchor.event_digests[-1], *chain_digests(pages, anchor.event_digests[-1])]
        named = namespace_of(config, extra_key, salt)
        before, *chain = [named.event_hash(digest) for digest in digests]
        self.announced.know(chain, before)

    def refill(self, index: int) -> None:
        """Refill below an anchor chosen earlier, whatever has become of it."""
        if self.anchored:
            node, key = self.anchored.pop(index % len(self.anchored))
            self.core.insert_host(node, key)
            self.core.unlock_host(node)

    def finish_load_back(self, index: int) -> None:
        """Complete one copy to the device."""
        if self.loading:
            self.core.finish_load_back(self.loading.pop(index % len(self.loading)))

    def acknowledge(self) -> None:
        """Complete the oldest copy to host."""
        for backup in self.core.pending_backups()[:1]:
            acked = self.core.acknowledge(backup)
            assert acked.num_tokens == len(acked.pages) * self.core.config.page_size

    def cycle(self, key: CacheKey) -> None:
        """Down to host and up again."""
        self.insert(key)
        for _ in self.core.pending_backups():
            self.acknowledge()
        self.core.evict_device(self.core.device.capacity)
        self.load_back(key)

    def unlock(self, index: int) -> None:
        """Unpin one key."""
        if self.locked:
            self.core.unlock(self.locked.pop(index % len(self.locked)))

    def lock(self, key: CacheKey) -> None:
        """Pin what a key has on the device."""
        node = self.core.match(key).device_node
        self.core.lock(node)
        self.locked.append(node)

    def back_up(self, key: CacheKey) -> None:
        """Force a copy to host."""
        node = self.core.match(key).device_node
        if self.core.config.has_host_tier and not node.is_root:
            self.core.back_up(node)

    def reset(self) -> None:
        """Flush; the engine forgets what it held."""
        self.core.reset()
        self.locked.clear()
        self.loading.clear()
        self.anchored.clear()

    def let_go(self) -> None:
        """Complete every copy and give up every lock and reservation."""
        while self.anchored:
            self.refill(0)
        for _ in self.core.pending_backups():
            self.acknowledge()
        while self.loading:
            self.finish_load_back(0)
        while self.locked:
            self.unlock(0)

    def hear(self) -> list[KvEvent]:
        """Take what was published since the last time."""
        return self.core.take_events()

    def check(self) -> None:
        """What was announced is what is readable, and every invariant holds."""
        self.announced.hear(self.hear())
        self.announced.check(self.core.residency())
        self.core.check()

    def end(self) -> None:
        """Let go of everything: nothing may be left in the pools."""
        self.let_go()
        self.core.evict_device(self.core.device.capacity)
        assert self.core.device.free == self.core.device.capacity
        if self.core.host is not None:
            self.core.evict_host(self.core.host.capacity)
            assert self.core.host.free == self.core.host.capacity
