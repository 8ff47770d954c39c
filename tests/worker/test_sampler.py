"""Answers follow from the prompt alone."""

from itertools import islice

import pytest

from worker.sampler import Sampler

SAMPLER = Sampler((1, 2, 3), tuple(range(100, 164)))


def take(prompt: tuple[int, ...], length: int = 200) -> list[int]:
    return list(islice(SAMPLER.answer(prompt), length))


def test_equal_prompts_equal_answers() -> None:
    assert take((5, 6)) == take((5, 6))
    assert take((5, 6)) != take((6, 5))


def test_answers_are_the_same_in_every_run() -> None:
    assert take((5, 6), 4) == [2, 113, 134, 125]


def test_ids_come_from_their_sets_and_vary() -> None:
    first, *others = take((7,))
    assert first in SAMPLER.first_ids
    assert set(others) <= set(SAMPLER.next_ids)
    assert len(set(others)) > 50


def test_empty_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="no token ids"):
        Sampler((), (1,))
