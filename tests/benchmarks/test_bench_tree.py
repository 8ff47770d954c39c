from benchmarks.bench_tree import (
    OPERATIONS,
    PROMPT_PAGES,
    SHARED_PAGES,
    Flat,
    Tree,
    prompt_of,
    timed,
)


def test_tree_and_baseline_hold_the_same_pages() -> None:
    caches = (Tree(1_000), Flat())
    for cache in caches:
        for number in range(10):
            cache.insert(prompt_of(number))
        assert cache.match(prompt_of(9)) == PROMPT_PAGES
        assert cache.match(prompt_of(10)) == SHARED_PAGES
    tree, flat = (len(cache) for cache in caches)
    assert tree == flat == 10 * PROMPT_PAGES - 8 * SHARED_PAGES


def test_every_operation_is_timed_and_the_cache_keeps_its_size() -> None:
    for cache in (Tree(2_000), Flat()):
        timing = timed(cache, 2_000, num_rounds=2, num_operations=5)
        assert abs(len(cache) - 2_000) < 2 * PROMPT_PAGES
        for name in OPERATIONS:
            assert len(timing.per_second(name)) == 2
            assert min(timing.per_second(name) + timing.p99_us(name)) > 0
