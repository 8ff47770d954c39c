"""Long seeded walks of a tree core, deep enough that every path is taken."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

import pytest

from tests.worker.tree.life import ADAPTERS, Life
from worker.tree import EvictionPolicy, TreeConfig, WritePolicy

STEPS = 500
CONFIGS = [
    (write_policy, eviction_policy, page_size)
    for write_policy in WritePolicy
    for eviction_policy in EvictionPolicy
    for page_size in (1, 3)
]


def walk(life: Life, rng: random.Random) -> None:
    """One random step."""
    run = rng.choices(range(3), k=rng.randint(1, 6))
    namespace = rng.choice([0, 0, 0, 1])
    key = life.key(run, namespace, rng.randint(0, 2))
    size = life.core.config.page_size
    steps: dict[Callable[[], object], int] = {
        lambda: life.insert(key, rng.randint(0, 2)): 6,
        lambda: life.insert_owned(key, rng.randint(0, 4)): 3,
        lambda: life.cycle(key): 1,
        lambda: life.load_back(key): 3,
        lambda: life.finish_load_back(rng.randrange(9)): 3,
        life.acknowledge: 6,
        lambda: life.anchor(run, namespace, rng.randint(0, 3)): 3,
        lambda: life.refill(rng.randrange(9)): 3,
        lambda: life.core.evict_device(size * rng.randint(1, 8)): 2,
        lambda: life.core.evict_host(size * rng.randint(1, 3)): 1,
        lambda: life.lock(key): 1,
        lambda: life.unlock(rng.randrange(9)): 2,
        lambda: life.back_up(key): 1,
    }
    rng.choices(list(steps), list(steps.values()))[0]()


@pytest.mark.parametrize(("write_policy", "eviction_policy", "page_size"), CONFIGS)
def test_what_is_announced_is_readable_all_along(
    write_policy: WritePolicy, eviction_policy: EvictionPolicy, page_size: int
) -> None:
    config = TreeConfig(
        page_size=page_size,
        device_tokens=20 * page_size,
        host_tokens=14 * page_size,
        write_policy=write_policy,
        load_back_threshold=0,
        eviction_policy=eviction_policy,
        adapters=ADAPTERS,
    )
    rng = random.Random(f"{write_policy} {eviction_policy} {page_size}")
    life = Life(config)
    for _ in range(STEPS):
        walk(life, rng)
        life.check()
    done = Counter(asdict(life.core.counters))
    life.end()
    for path in ("inserted", "revived", "demoted", "loaded_back", "refilled", "host_evicted"):
        assert done[path], f"the walk never saw {path}"


def test_sliding_window_life_announces_what_is_readable() -> None:
    life = Life(TreeConfig(page_size=2, device_tokens=40, sliding_window=4))
    rng = random.Random(4)
    tombstones = 0
    for _ in range(STEPS):
        if rng.random() < 0.2:
            freed = life.core.evict_window(rng.randint(1, 6))
            tombstones += freed.window_tokens - freed.device_tokens
        else:
            walk(life, rng)
        life.check()
    assert tombstones
    life.end()
