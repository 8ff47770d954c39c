"""The synthetic workload: determined by its seed, of the sizes asked for, with prefixes to share."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest

from loadgen import Arrivals, TimedRequest, WorkloadSpec, synthesise
from tests.loadgen.words import WORDS

SPEC = WorkloadSpec(num_requests=60, duration_s=10.0, system_words=20, document_words=40)


def messages(request: TimedRequest) -> list[dict[str, str]]:
    found: list[dict[str, str]] = orjson.loads(request.body)["messages"]
    return found


def by_group(requests: list[TimedRequest]) -> dict[str, list[TimedRequest]]:
    groups = defaultdict(list)
    for request in requests:
        groups[request.group].append(request)
    return groups


@pytest.mark.parametrize("arrivals", Arrivals)
def test_same_seed_same_workload(arrivals: Arrivals) -> None:
    spec = replace(SPEC, arrivals=arrivals)
    first, second = (synthesise(spec, WORDS, "m", seed=3) for _ in range(2))
    assert first == second
    assert synthesise(spec, WORDS, "m", seed=4) != first


@pytest.mark.parametrize("num_requests", [16, 17, 60, 200])
def test_number_and_order(num_requests: int) -> None:
    requests = synthesise(replace(SPEC, num_requests=num_requests), WORDS, "m")
    assert len(requests) == num_requests
    assert all(one.at_s <= other.at_s for one, other in pairwise(requests))
    assert requests[0].at_s >= 0.0


def test_turns_grow_out_of_each_other() -> None:
    groups = by_group(synthesise(SPEC, WORDS, "m"))
    chats = [turns for group, turns in groups.items() if group.startswith("chat")]
    assert any(len(turns) > 1 for turns in chats)
    for turns in chats:
        for one, other in pairwise(turns):
            assert messages(other)[: len(messages(one))] == messages(one)
            assert messages(other)[-1]["role"] == "user"


def test_a_chat_names_its_user_and_a_burst_nobody() -> None:
    for request in synthesise(SPEC, WORDS, "m"):
        named = request.group if request.group.startswith("chat") else None
        assert orjson.loads(request.body).get("user") == named


def test_bursts_share_all_but_the_question_and_come_at_once() -> None:
    groups = by_group(synthesise(SPEC, WORDS, "m"))
    bursts = [requests for group, requests in groups.items() if group.startswith("burst")]
    assert [len(requests) for requests in bursts] == [8, 8]
    for requests in bursts:
        assert len({request.at_s for request in requests}) == 1
        assert len({orjson.dumps(messages(request)[:-1]) for request in requests}) == 1
        assert len({messages(request)[-1]["content"] for request in requests}) == 8


def test_system_prompts_are_few_and_unevenly_popular() -> None:
    requests = synthesise(replace(SPEC, num_requests=400), WORDS, "m")
    counts = Counter(messages(request)[0]["content"] for request in requests)
    assert len(counts) <= SPEC.num_apps
    assert max(counts.values()) > 2 * min(counts.values())


def test_clumped_arrivals_are_more_uneven_than_poisson() -> None:
    def unevenness(arrivals: Arrivals) -> float:
        spec = replace(SPEC, num_requests=600, turns=1.0, arrivals=arrivals, num_bursts=0)
        chats = by_group(synthesise(spec, WORDS, "m")).values()
        times = sorted(turns[0].at_s for turns in chats)
        gaps = [other - one for one, other in pairwise(times)]
        mean = sum(gaps) / len(gaps)
        variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
        return variance / mean**2

    assert unevenness(Arrivals.CLUMPED) > 2 * unevenness(Arrivals.POISSON)


@pytest.mark.parametrize(
    "make",
    [
        lambda: replace(SPEC, num_requests=0),
        lambda: replace(SPEC, duration_s=0.0),
        lambda: replace(SPEC, turns=0.5),
        lambda: replace(SPEC, burst_requests=100),
    ],
)
def test_sizes_that_make_no_workload_are_refused(make: Callable[[], WorkloadSpec]) -> None:
    with pytest.raises(ValueError, match=r"num_requests|duration_s|turns"):
        make()
