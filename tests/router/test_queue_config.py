"""The queue's configuration, and what planner and queue take of it."""

import pytest

from router.config import ConfigError, RouterConfig, load_config
from router.priority import PriorityRight
from router.waiting_queue import QueueLimits
from scoring.capacity import Capacity
from tests.router.test_client_keys import entry


def load(**settings: object) -> RouterConfig:
    return load_config(None, settings, {})


def test_by_default_no_rank_has_a_bound_and_a_queue_is_ready_for_one() -> None:
    queue = load().queue
    assert queue.capacity() == Capacity(None, None)
    assert queue.limits() == QueueLimits(1024, 30.0, PriorityRight(0, 0))


@pytest.mark.parametrize(
    ("max_priority", "right"),
    [(0, PriorityRight(0, 0)), (7, PriorityRight(0, 7)), (-2, PriorityRight(-2, -2))],
)
def test_requests_without_a_key_have_the_priority_of_most(
    max_priority: int, right: PriorityRight
) -> None:
    assert load(queue={"max_priority": max_priority}).queue.limits().priority == right


def test_the_environment_names_it() -> None:
    variables = {"KVROUTE_QUEUE__MAX_IN_FLIGHT": "8", "KVROUTE_QUEUE__MAX_QUEUED": "0"}
    queue = load_config(None, {}, variables).queue
    assert (queue.max_in_flight, queue.max_queued) == (8, 0)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"queue": {"max_in_flight": 0}}, "queue.max_in_flight"),
        ({"queue": {"engine_factor": 0}}, "queue.engine_factor"),
        ({"queue": {"max_queued": -1}}, "queue.max_queued"),
        ({"queue": {"max_queued": 65_537}}, "queue.max_queued"),
        ({"queue": {"timeout_s": 0}}, "queue.timeout_s"),
        ({"queue": {"max_priority": 101}}, "queue.max_priority"),
        ({"queue": {"nope": 1}}, "queue.nope"),
        ({"workers": [{"url": "http://a:1", "max_in_flight": 0}]}, "workers.0.max_in_flight"),
    ],
)
def test_what_does_not_fit_is_named(settings: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        load(**settings)


@pytest.mark.parametrize(
    ("rights", "right"),
    [
        ({}, PriorityRight(0, 0)),
        ({"priority": 4}, PriorityRight(4, 4)),
        ({"priority": -4}, PriorityRight(-4, -4)),
        ({"priority": -4, "max_priority": 2}, PriorityRight(-4, 2)),
    ],
)
def test_a_key_names_the_priority_of_its_requests(
    rights: dict[str, object], right: PriorityRight
) -> None:
    assert entry("a", **rights).priority_right() == right


@pytest.mark.parametrize(
    "rights", [{"priority": 101}, {"max_priority": -101}, {"priority": 3, "max_priority": 2}]
)
def test_a_key_whose_priorities_make_no_sense_is_refused(rights: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="priority"):
        entry("a", **rights)
