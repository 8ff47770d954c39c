"""Loops of routers end, and are found when a worker is learned."""

import json

import pytest

from protocol import WorkerId
from router.errors import FrontDoorError
from router.hops import MAX_HOPS, Hops
from router.probe import ProbeError, ProbeTimeouts, open_prober
from tests.router.front_door import ask, front_door
from tests.router.stub_worker import answering, response, stub_worker

OK = answering(response(b'{"data":[{"id":"m"}]}'))
OTHERS = b", ".join(b"1.1 kvroute-%d" % number for number in range(MAX_HOPS))


def test_others_may_have_been_passed_but_not_oneself() -> None:
    hops = Hops("me")
    hops.refuse_loops(b"")
    hops.refuse_loops(b"1.1 proxy, 1.0 kvroute-you (a comment), 2 kvroute-they")
    with pytest.raises(FrontDoorError) as refusal:
        hops.refuse_loops(b"1.1 proxy,1.1 kvroute-me, 1.1 kvroute-you")
    assert refusal.value.status == 508
    with pytest.raises(FrontDoorError, match="has passed 8 routers"):
        hops.refuse_loops(OTHERS)


async def test_each_router_adds_its_name_and_keeps_those_before() -> None:
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url) as inner,
        front_door(inner.url) as outer,
    ):
        answer = await ask(outer, headers=[("Via", "1.1 proxy")])
        await outer.settled()
        await inner.settled()
    assert answer.status == 200
    names = [door.relay.hops.field[1].decode() for door in (outer, inner)]
    assert worker.requests[0].values("via") == ["1.1 proxy", *names]


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/anything", "/v1/models", "/health"])
async def test_a_request_that_comes_back_is_refused(target: str) -> None:
    async with stub_worker(OK) as worker, front_door(worker.url) as door:
        name, value = door.relay.hops.field
        own = [(name.decode(), value.decode())]
        method = "POST" if "chat" in target else "GET"
        answer = await ask(door, method, target, own, b"{}" if method == "POST" else None)
        await door.settled()
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (508, "loop")
    assert not worker.requests


async def test_a_worker_that_is_the_router_itself_ends_at_once() -> None:
    async with front_door("http://127.0.0.1:9") as door:
        door.brain.urls["w0"] = door.url
        answer = await ask(door)
        await door.settled()
        assert answer.status == 508
        async with open_prober(ProbeTimeouts(), None, door.relay.hops) as prober:
            with pytest.raises(ProbeError, match="leads back to this router"):
                await prober.describe(WorkerId("w0"), door.url)
            why = await prober.why_unhealthy(door.url)
            assert why is not None
            assert "leads back to this router" in why


async def test_two_routers_before_each_other_end_too() -> None:
    async with front_door("http://127.0.0.1:9") as one, front_door(one.url) as other:
        one.brain.urls["w0"] = other.url
        answer = await ask(other)
        await one.settled()
        await other.settled()
    assert answer.status == 508
    assert len(one.brain.kinds) == len(other.brain.kinds) == 1
