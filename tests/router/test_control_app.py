"""The control port in process: workers, findings, metrics, the token."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from indexer.trust import Trust
from protocol import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KvEvent,
    LiveMessage,
    Rank,
    WorkerId,
    encode_batch,
    live_frames,
)
from router.discovery import NamedEvents
from scoring import Outcome, OutcomeKind, PlanRequest
from tests.router.brains import fleet, source
from tests.router.control_port import control

CHAT = {"messages": [{"role": "user", "content": "hello there"}]}


async def test_workers_come_change_and_go() -> None:
    with fleet() as one:
        async with control(one) as (client, _):
            assert (await client.get("/workers")).json() == []
            added = await client.post("/workers", json={"url": "http://w0:1/", "name": "w0"})
            assert added.status_code == 201
            assert (added.json()["worker"], added.json()["url"]) == ("w0", "http://w0:1")
            assert added.json()["state"] == "pending"
            again = await client.post("/workers", json={"url": "http://w0:1"})
            assert again.status_code == 409
            drained = await client.patch("/workers/w0", json={"draining": True})
            assert drained.json()["draining"] is True
            assert (await client.delete("/workers/w0")).status_code == 204
            assert (await client.delete("/workers/w0")).status_code == 404
            gone = await client.patch("/workers/w0", json={"draining": True})
            assert gone.status_code == 404


async def test_a_worker_comes_with_event_endpoints_that_it_does_not_tell_itself() -> None:
    events = {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657", "topic": "kv"}
    with fleet() as one:
        async with control(one) as (client, _):
            body = {"url": "http://w0:1", "events": events}
            assert (await client.post("/workers", json=body)).status_code == 201
            bound = {"url": "http://w1:1", "events": {"listen": "tcp://*:5557"}}
            assert (await client.post("/workers", json=bound)).status_code == 201
        assert one.registry.record(WorkerId("w0:1")).events == NamedEvents(
            "tcp://*:5557", "tcp://*:5657", "kv"
        )
        assert one.registry.record(WorkerId("w1:1")).events == NamedEvents(
            "tcp://*:5557", is_bound=True
        )


BAD_URLS = [
    "http://é:1",
    "http://a:0",
    "http://a:",
    "http://a:65536",
    "http://a:1x",
    "http://a b:1",
    "http://a\n:1",
    "http://a\t:1",
    "http://a:1/\x00",
    "http://a:1/é",
    "http://[::1:1",
    "http://[x::y]:1",
    "http://a:1\\b",
    "http://a,b:1",
    f"http://{'a' * 254}:1",
    f"http://a/{'p' * 2048}",
]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"url": "ftp://x"}, 400),
        ({"url": "http://"}, 400),
        *(({"url": url}, 400) for url in BAD_URLS),
        ({"url": "http://a:1", "name": "a\nb"}, 400),
        ({"url": "http://a:1", "name": "two words"}, 400),
        ({"url": "http://a:1", "events": {"endpoint": "ipc://a"}}, 400),
        ({"url": "http://a:1", "events": {"endpoint": "tcp://*:1", "replay_endpoint": ""}}, 400),
        ({"url": "http://a:1", "events": {"endpoint": "tcp://*:1", "topic": "a\nb"}}, 400),
        ({"url": "http://a:1", "events": {}}, 400),
        ({"url": "http://a:1", "events": {"endpoint": "tcp://*:1", "listen": "tcp://*:2"}}, 400),
        ({"url": "http://a:1", "events": {"endpoint": 1}}, 422),
        ({"url": "http://a:1", "events": {"endpoint": "tcp://*:1", "replay": "x"}}, 422),
        ({"url": 1}, 422),
        ({}, 422),
        ({"url": "http://a", "nmae": "x"}, 422),
    ],
)
async def test_bad_workers_are_refused(body: dict[str, object], status: int) -> None:
    with fleet() as one:
        async with control(one) as (client, _):
            answer = await client.post("/workers", json=body)
            assert answer.status_code == status
            if status == 400:
                field = answer.json()["detail"].split(":")[0]
                assert field in ("url", "name", "events") or field.startswith("events.")
        assert one.registry.records() == []


@pytest.mark.parametrize(
    "text", ['{"url": "http://\\ud800:1"}', '{"\\ud800": 1, "url": "http://a"}', "{", "[1]", '"x"']
)
async def test_what_is_no_text_is_refused_and_harms_no_list(text: str) -> None:
    with fleet() as one:
        async with control(one) as (client, _):
            headers = {"content-type": "application/json"}
            answer = await client.post("/workers", content=text, headers=headers)
            assert answer.status_code in (400, 422)
            assert (await client.get("/workers")).json() == []
            long = await client.post("/workers", json={"url": ["x" * 100_000]})
            assert (long.status_code, len(long.content) < 1000) == (422, True)


async def test_the_token_guards_all_but_the_probes() -> None:
    with fleet() as one:
        async with control(one, token="s3cret") as (client, _):
            for path in (
                "/workers",
                "/metrics",
                "/debug/workers",
                "/debug/decisions",
                "/openapi.json",
            ):
                assert (await client.get(path)).status_code == 401
                wrong = {"Authorization": "Bearer s3cre"}
                assert (await client.get(path, headers=wrong)).status_code == 401
                right = {"Authorization": "Bearer s3cret"}
                assert (await client.get(path, headers=right)).status_code == 200
            assert (await client.post("/debug/route", json=CHAT)).status_code == 401
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/ready")).status_code == 503


async def test_a_token_may_have_any_letters() -> None:
    with fleet() as one:
        async with control(one, token="pässwörd") as (client, _):
            for given, status in (("pässwörd", 200), ("passwörd", 401)):
                headers = {b"Authorization": f"Bearer {given}".encode()}
                assert (await client.get("/workers", headers=headers)).status_code == status


async def test_workers_in_full() -> None:
    with fleet() as one:
        worker = one.learn("w0", sources=(source(has_replay=True),))
        one.registry.add(WorkerId("later"), "http://later", one.clock.now)
        rank, index = Rank(worker), one.brains.index
        index.set_trust(rank, Trust.EXACT, one.clock.now)
        stored = BlockStored([1, 2], None, list(range(8)), 4, medium="GPU")
        index.apply(rank, EventBatch(1.0, [AllBlocksCleared(), stored]), one.clock.now)
        one.brains.planner.plan(PlanRequest("a", "chat", "m", None, 0.0), one.clock.now)
        async with control(one) as (client, _):
            first, second = (await client.get("/debug/workers")).json()
            totals = (await client.get("/debug/index")).json()
        (shown,) = first["ranks"]
        assert (shown["trust"], shown["gpu_blocks"], shown["in_flight"]) == ("exact", 2, 1)
        assert shown["last_seq"] is None
        assert shown["stream"]["replay_endpoint"] == "tcp://127.0.0.1:5657"
        assert shown["stream"]["is_bound"] is False
        assert first["prompt_model"]["rung"] == "none"
        assert (second["state"], second["ranks"]) == ("pending", [])
        assert (totals["gpu_claims"], totals["ranks"]) == (2, 1)


async def test_a_rank_that_is_silent_beside_others_is_connected_all_the_same() -> None:
    with fleet() as one:
        spoken = source()
        one.learn("w0", sources=(spoken,))
        one.brains.intake.on_connected(spoken, one.clock.now)
        frames = live_frames(LiveMessage(b"", 0, encode_batch(EventBatch(1.0, [], dp_rank=1))))
        one.brains.intake.on_live(spoken, frames, one.clock.now)
        async with control(one) as (client, _):
            ((first,),) = [
                worker["ranks"] for worker in (await client.get("/debug/workers")).json()
            ]
        assert (first["dp_rank"], first["stream"]["is_connected"]) == (0, True)
        assert first["stream"]["counters"] == {}


async def test_the_last_loss_of_a_stream_is_named() -> None:
    with fleet() as one:
        spoken = source()
        one.learn("w0", sources=(spoken,))
        for seq in (0, 3):
            payload = encode_batch(EventBatch(float(seq), []))
            frames = live_frames(LiveMessage(b"", seq, payload))
            one.brains.intake.on_live(spoken, frames, one.clock.now)
        async with control(one) as (client, _):
            ((first,),) = [
                worker["ranks"] for worker in (await client.get("/debug/workers")).json()
            ]
        assert first["stream"]["last_loss"] == {
            "first_seq": 1,
            "last_seq": 2,
            "cause": "no_replay",
        }
        assert first["stream"]["counters"]["lost_batches"] == 2


async def test_findings_are_listed() -> None:
    with fleet() as one:
        one.learn("w0", sources=(source(),))
        one.tick(1)
        one.brains.index.tick(one.clock.now)
        async with control(one) as (client, _):
            findings = (await client.get("/debug/findings")).json()
        assert [finding.pop("advice") != "" for finding in findings] == [True]
        assert findings == [
            {
                "kind": "replay_off",
                "age_s": 0.0,
                "ranks": [{"worker": "w0", "dp_rank": 0}],
                "evidence": {"num_ranks": 1, "endpoint": source().endpoint},
            }
        ]


async def test_metrics_are_valid_and_count() -> None:
    with fleet() as one:
        worker = one.learn("w0", sources=(source(),))
        one.brains.intake.on_connected(source(), one.clock.now)
        plan = one.brains.planner.plan(PlanRequest("a", "chat", "m", None, 0.0), one.clock.now)
        one.brains.planner.finish(plan.plan_id, Outcome(OutcomeKind.COMPLETED), one.clock.now)
        stored = BlockStored([1], None, [1, 2, 3, 4], 4, "GPU")
        odd: list[KvEvent] = [stored, stored, BlockRemoved([2], "CPU_PINNED")]
        one.brains.index.apply(Rank(worker), EventBatch(1.0, odd), one.clock.now)
        async with control(one) as (client, counters):
            counters.requests["chat", "2xx"] += 2
            counters.ttft_s.observe(0.02)
            counters.ttft_s.observe(1000)
            answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        value = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
        assert value["kvroute_requests_total", (("api", "chat"), ("status", "2xx"))] == 2
        assert value["kvroute_attempts_total", (("outcome", "completed"),)] == 1
        assert value["kvroute_leases_open", ()] == 0
        assert value["kvroute_workers", (("state", "serving"),)] == 1
        assert value["kvroute_ttft_seconds_bucket", (("le", "0.025"),)] == 1
        assert value["kvroute_ttft_seconds_bucket", (("le", "+Inf"),)] == 2
        assert value["kvroute_ttft_seconds_count", ()] == 2
        labels = (("dp_rank", "0"), ("worker", worker))
        assert value["kvroute_stream_batches_total", labels] == 0
        connects = (("dp_rank", "0"), ("kind", "connects"), ("worker", worker))
        assert value["kvroute_event_source_total", connects] == 1
        assert value["kvroute_event_sockets_total", (("kind", "stray_messages"),)] == 0
        reset = (("cause", "lower_number"), *labels)
        assert value["kvroute_stream_resets_total", reset] == 0
        assert value["kvroute_index_claims", (("tier", "host_pinned"),)] == 0
        odd_by_tier = {
            name: [
                value[f"kvroute_{name}_total", tuple(sorted((*labels, ("tier", tier))))]
                for tier in ("gpu", "host_pinned", "storage")
            ]
            for name in ("duplicate_stores", "unknown_removals")
        }
        assert odd_by_tier == {"duplicate_stores": [1, 0, 0], "unknown_removals": [0, 1, 0]}
