"""Examinations by way of a router: its workers are looked at, and what it misses is told."""

import json
from dataclasses import replace

import pytest

from kvroute.doctor import Keys, Status
from tests.kvroute.examined import OPTIONS, kv_events, look, of, tokenizes
from tests.router.stub_engine import stub_engine, stub_publisher
from tests.router.stub_worker import Peer, Script, response, stub_worker


def control_port(workers: list[dict[str, object]], findings: list[dict[str, object]]) -> Script:
    pages: dict[str, object] = {"/debug/workers": workers, "/debug/findings": findings}

    async def serve(peer: Peer) -> None:
        if peer.request.values("authorization") != ["Bearer secret"]:
            detail = {"detail": "the control token is missing or wrong"}
            await peer.send(response(json.dumps(detail).encode(), status=401))
            return
        await peer.send(response(json.dumps(pages[peer.request.target]).encode()))

    return serve


async def test_a_router_stands_for_its_workers_and_tells_what_it_misses() -> None:
    async with stub_engine() as engine:
        listed: list[dict[str, object]] = [
            {"worker": "blue", "url": engine.url, "state": "serving", "ranks": [{"dp_rank": 0, "trust": "none"}]},
            {"worker": "gone", "url": "http://127.0.0.1:9", "state": "pending", "error": "refused"},
        ]  # fmt: skip
        finding: dict[str, object] = {
            "kind": "events_missing",
            "ranks": [{"worker": "blue", "dp_rank": 0}],
            "advice": "Start the engine with KV events on.",
        }
        async with stub_worker(control_port(listed, [finding])) as router:
            keys = replace(OPTIONS, keys=Keys(control="secret"))
            found = await look(router.url, engine.url, options=keys)
            locked = await look(router.url)
    assert [one.name for one in found.workers] == ["blue", "gone"]
    (report,) = found.routers
    texts = " ".join(f"{one.text} {one.change}" for one in report.checks)
    assert "gone is pending: refused" in texts
    assert "finding events_missing on blue/0 Start the engine" in texts
    assert "trust of ranks: none 1" in texts
    assert not any(request.values("authorization") for request in engine.worker.requests)
    ((only,),) = [one.checks for one in locked.routers]
    assert "--token" in only.change
    assert not locked.workers


async def test_endpoints_that_only_the_router_knows_are_looked_at() -> None:
    async with stub_publisher() as publisher, stub_engine() as engine:
        stream = {"endpoint": f"tcp://127.0.0.1:{publisher.port}", "replay_endpoint": None}
        ranks = [{"dp_rank": 0, "trust": "exact", "stream": stream}]
        listed: list[dict[str, object]] = [
            {"worker": "w", "url": engine.url, "state": "serving", "ranks": ranks}
        ]
        async with stub_worker(control_port(listed, [])) as router:
            found = await look(router.url, options=replace(OPTIONS, keys=Keys(control="secret")))
    assert of(found)["events"].status is Status.OK
    assert of(found)["ranks"].status is Status.OK


@pytest.mark.parametrize("tells", [True, False])
async def test_engines_that_connect_to_their_router_are_no_fault(*, tells: bool) -> None:
    async with stub_worker(tokenizes()) as listener:
        events = kv_events(listener.port, endpoint_host="127.0.0.1") if tells else None
        async with stub_engine(kv_events=events) as one, stub_engine(kv_events=events) as other:
            stream = {
                "endpoint": f"tcp://127.0.0.1:{listener.port}",
                "replay_endpoint": None,
                "is_bound": True,
            }
            ranks = [{"dp_rank": 0, "trust": "exact", "stream": stream}]
            listed: list[dict[str, object]] = [
                {"worker": name, "url": engine.url, "state": "serving", "ranks": ranks}
                for name, engine in (("one", one), ("other", other))
            ]
            async with stub_worker(control_port(listed, [])) as router:
                visit = replace(OPTIONS.visit, nonce="n")
                keys = replace(OPTIONS, visit=visit, keys=Keys(control="secret"))
                found = await look(router.url, options=keys)
    assert listener.num_accepts == 0
    assert found.num_faults == 0, list(found.checks)
    assert of(found)["events"].status is Status.UNCHECKED
    assert "the router listens there" in of(found)["events"].text
    assert of(found)["probe"].status is Status.OK
