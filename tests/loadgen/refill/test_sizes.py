"""Sizes of the refill story: what cannot tell it is refused, and what is sent where."""

from dataclasses import replace

import pytest

from loadgen.refill import RefillSpec

SMALL = RefillSpec(num_workers=4, num_prefixes=16, host_prefixes=8, gpu_prefixes=2)


@pytest.mark.parametrize("spec", [RefillSpec(), SMALL])
def test_a_host_pool_is_filled_with_what_others_computed(spec: RefillSpec) -> None:
    for worker_index in range(spec.num_workers):
        refilled = spec.refilled_by(worker_index)
        assert len(set(refilled)) == len(refilled) == spec.host_prefixes
        assert not set(refilled) & set(spec.computed_by(worker_index))
        assert set(refilled) <= set(range(spec.num_prefixes))


@pytest.mark.parametrize("spec", [RefillSpec(), SMALL])
def test_every_prefix_is_computed_once_and_refilled_somewhere(spec: RefillSpec) -> None:
    workers = range(spec.num_workers)
    computed = sorted(prefix for w in workers for prefix in spec.computed_by(w))
    assert computed == list(range(spec.num_prefixes))
    assert {prefix for w in workers for prefix in spec.refilled_by(w)} == set(computed)


def test_full_size_refills_enough() -> None:
    spec = RefillSpec()
    assert spec.num_workers * spec.host_prefixes * spec.prefix_tokens >= 169_472


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"num_workers": 1}, "num_workers"),
        ({"num_prefixes": 100}, "num_prefixes"),
        ({"host_prefixes": 16}, "host_prefixes"),
        ({"host_prefixes": 40}, "host_prefixes"),
        ({"host_prefixes": 80}, "host_prefixes"),
        ({"tail_tokens": 0}, "tail_tokens"),
        ({"tail_tokens": 60}, "page_size"),
        ({"gpu_prefixes": 9}, "gpu_prefixes"),
        ({"decisions": 0}, "decisions"),
    ],
)
def test_sizes_that_cannot_tell_it_are_refused(change: dict[str, int], word: str) -> None:
    fields = {name: getattr(RefillSpec(), name) for name in RefillSpec.__slots__}
    with pytest.raises(ValueError, match=word):
        RefillSpec(**(fields | change))


def test_muting_is_the_only_difference() -> None:
    spec = RefillSpec()
    announced, muted = (spec.fleet("/s", is_muted=is_muted) for is_muted in (False, True))
    assert muted.worker_flags == (*announced.worker_flags, "--mute-refill-events")
    assert replace(muted, worker_flags=announced.worker_flags) == announced
