"""The data port behind keys: who is served, what goes on to workers, and what answers tell."""

import asyncio
import json
import re
from random import Random

import pytest

from prompt import Api
from router.client_keys import ClientKeys, KeyOutcome, Stranger
from router.data_app import DataLimits
from tests.router.front_door import FrontDoor, WireAnswer, ask, connect, front_door
from tests.router.stub_worker import (
    SSE_HEAD,
    Peer,
    StubWorker,
    answering,
    chunk,
    response,
    stub_worker,
)
from tests.router.test_client_keys import entry

OK = answering(response(b"{}", headers=(("x-kvroute-score", "of another router"),)))
SALT = "a salt of 20 letters"


def bearer(name: str) -> tuple[str, str]:
    return "Authorization", f"Bearer key-{name}"


def code(answer: WireAnswer) -> object:
    return json.loads(answer.body)["error"]["code"]


async def test_without_a_key_nothing_but_probes_and_preflights_is_served() -> None:
    preflight = [("Origin", "https://a"), ("Access-Control-Request-Method", "POST")]
    async with (
        stub_worker(OK) as worker,
        front_door(worker.url, keys=ClientKeys([entry()])) as door,
    ):
        for target in ("/v1/chat/completions", "/v1/models", "/flush_cache", "/health/x"):
            refused = await ask(door, "GET", target, body=None)
            assert (refused.status, code(refused)) == (401, "invalid_api_key")
            assert refused.values("www-authenticate") == ["Bearer"]
            assert refused.values("x-request-id")
        assert not worker.requests
        for method, target in (("GET", "/health"), ("HEAD", "/ready")):
            assert (await ask(door, method, target, body=None)).status == 200
        free = await ask(door, "OPTIONS", "/v1/chat/completions", [*preflight, bearer("a")], None)
        assert (free.status, len(worker.requests)) == (200, 1)
        assert worker.requests[0].values("authorization") == []
        await door.settled()
        assert door.counters.requests[Api.CHAT, "4xx"] == 1


async def test_a_refused_body_is_not_taken_in() -> None:
    limits = DataLimits(max_body_bytes=1 << 20)
    async with front_door(limits=limits, keys=ClientKeys([entry()])) as door:
        refused = await ask(door, body=b"x" * (1 << 19), headers=[bearer("b")])
        assert (refused.status, refused.values("connection")) == (401, ["close"])


@pytest.mark.parametrize("field", [bearer("a"), ("x-api-key", "key-a")])
async def test_keys_stay_here_and_workers_get_their_own(field: tuple[str, str]) -> None:
    own = [field, ("X-API-Key", "other"), ("X-Other", "1")]
    async with stub_worker(OK) as worker:
        async with front_door(worker.url, keys=ClientKeys([entry()])) as door:
            assert (await ask(door, headers=own)).status == 200
        async with front_door(worker.url, keys=ClientKeys([entry()], "of the engines")) as door:
            assert (await ask(door, headers=own)).status == 200
        forwarded = ClientKeys([entry(is_forwarded=True)], "of the engines")
        async with front_door(worker.url, keys=forwarded) as door:
            assert (await ask(door, headers=own)).status == 200
    first, second, third = worker.requests
    for seen in worker.requests:
        assert seen.values("x-other") == ["1"]
    assert (first.values("authorization"), first.values("x-api-key")) == ([], [])
    assert second.values("authorization") == ["Bearer of the engines"]
    assert second.values("x-api-key") == []
    given = [value for name, value in own if name == field[0]]
    assert third.values(field[0])[: len(given)] == given


async def test_a_key_is_limited_to_its_models() -> None:
    keys = ClientKeys([entry(models=["m", "n"]), entry("b")])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        door.fleet.cards = ({"id": "m"}, {"id": "secret"})
        ours = [bearer("a")]
        shown = json.loads((await ask(door, "GET", "/v1/models", ours, None)).body)
        assert [card["id"] for card in shown["data"]] == ["m"]
        assert (await ask(door, "GET", "/v1/models/secret", ours, None)).status == 404
        all_of_them = await ask(door, "GET", "/v1/models", [bearer("b")], None)
        assert len(json.loads(all_of_them.body)["data"]) == 2

        assert (await ask(door, headers=ours)).status == 200
        for target, body in (
            ("/v1/chat/completions", b'{"model":"secret","messages":[]}'),
            ("/v1/chat/completions", b'{"model":"m","model":"secret","messages":[]}'),
            ("/generate", b'{"text":"a"}'),
            ("/v1/audio/transcriptions", b"--x"),
        ):
            refused = await ask(door, "POST", target, ours, body)
            assert (refused.status, code(refused)) == (403, "not_allowed")
        squeezed = await ask(door, headers=[*ours, ("Content-Encoding", "gzip")], body=b"\x1f\x8b")
        assert squeezed.status == 403
        assert (await ask(door, "GET", "/v1/responses/r", ours, None)).status == 200
        assert len(worker.requests) == 2
        await door.settled()
        assert next(iter(keys)).outcomes[KeyOutcome.FORBIDDEN] == 5


async def test_paths_that_administer_are_for_administrators() -> None:
    keys = ClientKeys([entry(), entry("root", administers=True)])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        for target in ("/flush_cache", "/v1/%6coad_lora_adapter", "/v1/..%2fflush_cache"):
            refused = await ask(door, "POST", target, [bearer("a")], b"")
            assert (refused.status, code(refused)) == (403, "not_allowed")
            assert (await ask(door, "POST", target, [bearer("root")], b"")).status == 200
        assert len(worker.requests) == 3


async def test_requests_in_flight_are_counted_by_key_and_freed_however_they_end() -> None:
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await go.wait()
        await peer.send(response(b"{}"))

    keys = ClientKeys([entry(max_in_flight=2), entry("b")])
    async with stub_worker(script) as worker, front_door(worker.url, keys=keys) as door:
        key = next(iter(keys))
        async with connect(door.port) as one, connect(door.port) as two:
            for client in (one, two):
                await client.send("POST", "/v1/chat/completions", [bearer("a")], b"{}")
                await worker.arrived.acquire()
            assert key.in_flight == 2
            busy = await ask(door, headers=[bearer("a")])
            assert (busy.status, code(busy)) == (429, "concurrency_limit_exceeded")
            assert busy.values("retry-after") == ["1"]
            two.close()
            while key.in_flight == 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            go.set()
            assert (await one.answer()).status == 200
        assert (await ask(door, headers=[bearer("b")])).status == 200
        await door.settled()
        keys.check()
        assert key.in_flight == 0


async def test_a_key_that_is_too_fast_is_told_when_to_come_again() -> None:
    keys = ClientKeys([entry(requests_per_s=0.01), entry("b")])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        assert (await ask(door, headers=[bearer("a")])).status == 200
        fast = await ask(door, headers=[bearer("a")])
        assert (fast.status, code(fast)) == (429, "rate_limit_exceeded")
        assert 90 < int(fast.values("retry-after")[0]) <= 100
        assert (await ask(door, headers=[bearer("b")])).status == 200


async def salt_of(door: FrontDoor, worker: StubWorker, name: str, body: bytes) -> str:
    """The salt with which a request arrives, after a look at the rest of it."""
    answer = await ask(door, headers=[bearer(name)], body=body)
    assert answer.status == 200
    arrived = json.loads(worker.requests[-1].body)
    salt = arrived.pop("cache_salt")
    assert isinstance(salt, str)
    sent = json.loads(body)
    sent.pop("cache_salt", None)
    assert arrived == sent
    assert door.brain.requests[-1].cache_salt == salt
    return salt


async def test_tenants_have_caches_of_their_own() -> None:
    keys = ClientKeys(
        [
            entry("a", cache_salt=SALT),
            entry("a2", cache_salt=SALT),
            entry("b", cache_salt=SALT[::-1]),
        ]
    )
    plain, own = b'{"model":"m","messages":[]}', b'{"cache_salt":"x","messages":[]}'
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        salts = {
            (name, body): await salt_of(door, worker, name, body)
            for name in ("a", "a2", "b")
            for body in (plain, own)
        }
        stolen = b'{"cache_salt":"%s"}' % salts["a", plain].encode()
        assert await salt_of(door, worker, "b", stolen) not in salts.values()
        assert salts["a", plain] == salts["a2", plain]
        assert salts["a", own] == salts["a2", own]
        assert len(set(salts.values())) == 4
        assert not any(SALT in request.body.decode() for request in worker.requests)


async def test_what_cannot_be_salted_is_refused_or_has_no_salt() -> None:
    keys = ClientKeys([entry("a", cache_salt=SALT)])
    ours = [bearer("a"), ("Content-Type", "application/json")]
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        for headers, body in (
            ([*ours, ("Content-Encoding", "gzip")], b"\x1f\x8b"),
            (ours, '{"messages":[]}'.encode("utf-16")),
        ):
            refused = await ask(door, headers=headers, body=body)
            assert (refused.status, code(refused)) == (400, "malformed_request")
        assert not worker.requests
        for body in (b'{"model":"m"}', b'{"cache_salt":"x"}', b"no json"):
            assert (await ask(door, "POST", "/v1/embeddings", ours, body)).status == 200
        first, second, third = (request.body for request in worker.requests)
        assert (first, third) == (b'{"model":"m"}', b"no json")
        assert json.loads(second)["cache_salt"] != "x"


async def test_scores_are_for_those_who_may_see_them() -> None:
    keys = ClientKeys([entry("a", sees_scores=True), entry("b")])
    async with stub_worker(OK) as worker:
        async with front_door(worker.url, keys=keys) as door:
            (score,) = (await ask(door, headers=[bearer("a")])).values("x-kvroute-score")
            assert re.fullmatch(r"\w+=[\w.]+(, \w+=[\w.]+)*", score)
            assert "matched=8, gpu=2, host=0, storage=0" in score
            assert (await ask(door, headers=[bearer("b")])).values("x-kvroute-score") == []
        async with front_door(worker.url) as door:
            assert (await ask(door, headers=[bearer("a")])).values("x-kvroute-score") == []


async def test_decisions_bear_the_name_of_the_key() -> None:
    keys = ClientKeys([entry("a")])
    async with stub_worker(OK) as worker:
        async with front_door(worker.url, keys=keys) as door:
            await ask(door, headers=[bearer("a")])
            await ask(door, headers=[bearer("z")])
            assert [request.client for request in door.brain.requests] == ["a"]
            assert keys.strangers == {Stranger.UNKNOWN_KEY: 1}
        async with front_door(worker.url) as door:
            await ask(door, headers=[bearer("a")])
            assert [request.client for request in door.brain.requests] == [None]
            assert worker.requests[-1].values("authorization") == ["Bearer key-a"]


@pytest.mark.parametrize("field", ["lora_path", "lora_name", "lora_id"])
async def test_a_key_is_limited_to_its_models_by_whatever_field_they_are_named(field: str) -> None:
    keys = ClientKeys([entry(models=["m", "mine"]), entry("b")])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        for given, status in (
            ("mine", 200),
            (None, 200),
            ("", 200),
            (["mine", None], 200),
            ("theirs", 403),
            (["mine", "theirs"], 403),
            ([["mine"]], 403),
            ({"mine": "mine"}, 403),
            (7, 403),
        ):
            body = json.dumps({"model": "m", "messages": [], field: given}).encode()
            for target in ("/v1/chat/completions", "/generate", "/v1/embeddings"):
                headers = [bearer("a"), ("Content-Type", "application/json")]
                answer = await ask(door, "POST", target, headers, body)
                assert answer.status == status, (given, target)
                if status == 403:
                    assert json.loads(answer.body)["error"]["param"] == field
                assert (await ask(door, "POST", target, [bearer("b")], body)).status == 200


@pytest.mark.parametrize("seed", range(3))
async def test_a_burst_with_every_kind_of_end_leaves_nothing_in_use(seed: int) -> None:
    """Clients that leave within a head, a body, a wait, a stream; answers that fail; requests behind one another."""
    rng = Random(seed)
    limit, most = 5, 0
    keys = ClientKeys([entry(max_in_flight=limit)])
    (key,) = keys

    async def script(peer: Peer) -> None:
        nonlocal most
        most = max(most, key.in_flight)
        await asyncio.sleep(0.02)
        match rng.randrange(4):
            case 0:
                peer.reset()
            case 1:
                await peer.send(SSE_HEAD + chunk(b"data: 1\n\n"))
                await asyncio.sleep(0.02)
                peer.close()
            case _:
                await peer.send(response(b"{}"))

    async def client_of(door: FrontDoor, kind: int) -> None:
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nX-Api-Key: key-a\r\n"
        whole = (head + "Content-Length: 2\r\n\r\n{}").encode()
        async with connect(door.port) as client:
            match kind:
                case 0:
                    client.writer.write(whole[:40])
                case 1:
                    client.writer.write(whole[:-1])
                case 2:
                    client.writer.write(whole * 4)
                    await client.head()
                case 3:
                    client.writer.write(whole)
                    await asyncio.sleep(rng.random() * 0.05)
                    client.reset()
                case _:
                    client.writer.write(whole)
                    await client.answer()
            await asyncio.sleep(rng.random() * 0.02)

    async with stub_worker(script) as worker, front_door(worker.url, keys=keys) as door:
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(client_of(door, rng.randrange(6)))
        while key.in_flight or door.guard.num_open:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await door.settled()
        keys.check()
    assert 0 < most <= limit
    assert key.outcomes[KeyOutcome.CONCURRENCY_LIMITED] > 0


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("PUT", "/generate"),
        ("POST", "/generate/"),
        ("POST", "/gener%61te"),
        ("POST", "/v1/chat%2Fcompletions"),
        ("POST", "/v1/%63ompletions?cache_salt=x"),
        ("POST", "http://elsewhere/v1/responses"),
        ("POST", "/v1/messages#/v1/embeddings"),
    ],
)
async def test_no_spelling_of_a_path_leads_past_a_tenants_salt(method: str, target: str) -> None:
    keys = ClientKeys([entry("a", cache_salt=SALT)])
    async with stub_worker(OK) as worker, front_door(worker.url, keys=keys) as door:
        answer = await ask(door, method, target, [bearer("a")], b'{"model":"m","messages":[]}')
        assert answer.status == 200
        assert json.loads(worker.requests[0].body)["cache_salt"]
        assert door.brain.requests[0].cache_salt
