"""Learned speeds: robust against outliers, equal for equal machines, bounded."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import WorkerId
from scoring.speeds import MAX_SPEED, MIN_SAMPLES, MIN_SPEED, STEP, SpeedBook

A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")


def book_of(*workers: WorkerId, model: str = "m") -> SpeedBook:
    book = SpeedBook()
    for worker in workers:
        book.add(worker, model)
    return book


def teach(book: SpeedBook, worker: WorkerId, speed: float, num_samples: int = MIN_SAMPLES) -> None:
    for _ in range(num_samples):
        book.learn(worker, 500.0 * speed, 500.0)


def test_nothing_is_known_before_the_minimum_of_samples() -> None:
    book = book_of(A, B)
    teach(book, A, 2.0, MIN_SAMPLES - 1)
    assert book.speed(A) is None
    teach(book, A, 2.0, 1)
    assert book.speed(A) == 2.0
    assert book.num_samples(A) == MIN_SAMPLES


def test_a_worker_that_has_not_spoken_is_as_fast_as_its_pool() -> None:
    book = book_of(A, B)
    teach(book, A, 2.0)
    assert book.speed(B) == 2.0
    book.add(C, "m")
    assert book.speed(C) == 2.0


def test_pools_are_by_model() -> None:
    book = book_of(A)
    book.add(B, "other")
    teach(book, A, 2.0)
    assert book.speed(B) is None


def test_outliers_do_not_move_it() -> None:
    book = book_of(A)
    teach(book, A, 1.0, 20)
    teach(book, A, 0.01, 9)
    assert book.speed(A) == 1.0


def test_equal_machines_get_equal_speeds_in_spite_of_noise() -> None:
    rng = Random(3)
    workers = [WorkerId(f"w{number}") for number in range(8)]
    book = book_of(*workers)
    for _ in range(200):
        for worker in workers:
            book.learn(worker, 500.0 * rng.gauss(1.5, 0.15), 500.0)
    assert len({book.speed(worker) for worker in workers}) == 1
    assert book.speed(workers[0]) == pytest.approx(1.5, rel=0.1)


def test_another_kind_of_machine_is_told_apart() -> None:
    book = book_of(A, B, C)
    teach(book, A, 1.0)
    teach(book, B, 1.0)
    teach(book, C, 0.5)
    assert book.speed(A) == book.speed(B) == 1.0
    assert book.speed(C) == pytest.approx(0.5, rel=STEP**0.5 - 1)


@pytest.mark.parametrize(
    ("drift", "expected"), [(1.04, 1.0), (0.96, 1.0), (1.06, 1.06), (0.94, 0.94)]
)
def test_a_pool_moves_only_when_its_median_departs(drift: float, expected: float) -> None:
    """Else every cost of the fleet would change a little with every answer."""
    book = book_of(A)
    teach(book, A, 1.0, 32)
    teach(book, A, drift, 32)
    assert book.speed(A) == pytest.approx(expected)


def test_it_follows_a_change_that_lasts() -> None:
    book = book_of(A)
    teach(book, A, 1.0, 32)
    teach(book, A, 2.0, 32)
    assert book.speed(A) == 2.0


def test_a_new_model_starts_anew_and_the_same_one_does_not() -> None:
    book = book_of(A)
    teach(book, A, 2.0)
    book.add(A, "m")
    assert book.speed(A) == 2.0
    book.add(A, "other")
    assert book.speed(A) is None
    book.check()


def test_unknown_workers_teach_nothing_and_removal_forgets() -> None:
    book = book_of(A)
    book.learn(B, 1.0, 1.0)
    teach(book, A, 2.0)
    book.remove(A)
    book.remove(A)
    assert book.speed(A) is None
    assert book.workers() == []
    book.check()


@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B, C]),
            st.sampled_from(["add m", "add n", "remove", "learn"]),
            st.floats(1e-9, 1e9),
            st.floats(1e-9, 1e9),
        )
    )
)
def test_speeds_stay_in_bounds(steps: list[tuple[WorkerId, str, float, float]]) -> None:
    book = SpeedBook()
    for worker, verb, expected_ms, observed_ms in steps:
        if verb == "remove":
            book.remove(worker)
        elif verb == "learn":
            for _ in range(MIN_SAMPLES):
                book.learn(worker, expected_ms, observed_ms)
        else:
            book.add(worker, verb[-1])
        book.check()
        speed = book.speed(worker)
        assert speed is None or MIN_SPEED / STEP <= speed <= MAX_SPEED * STEP
