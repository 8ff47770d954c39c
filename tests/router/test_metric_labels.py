"""Labels of metrics are of closed sets or of names that somebody vouches for, whatever clients send."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from prompt import Api
from protocol import Rank
from router.client_keys import ClientKeys
from router.connections import ConnectionEnd
from router.counters import RetryReason
from router.key_config import ClientKeyEntry
from router.metrics import exposition
from router.metrics_app import MetricsApp
from router.worker_entry import WorkerEntry
from scoring import OutcomeKind
from tests.router.brains import fleet
from tests.router.failing_workers import OK, reset_at_once
from tests.router.front_door import ask, connect, front_door
from tests.router.stub_worker import stub_worker
from tests.router.test_metrics import Samples, samples_of, sources_of

HOSTILE = ("/v1/é", "/" + "a" * 5000, '/x"}', "/%0a%00", "/../../etc", "/v1/chat/completions/%20")
STATUSES = {"1xx", "2xx", "3xx", "4xx", "5xx", "closed"}


def stands(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"kvroute_{name}", tuple(sorted(labels.items()))]


async def test_paths_methods_models_and_keys_of_clients_make_no_labels() -> None:
    entry = ClientKeyEntry(name="team-a", sha256=sha256(b"secret").hexdigest())
    async with (
        stub_worker(reset_at_once) as bad,
        stub_worker(OK) as worker,
        front_door(bad.url, worker.url, keys=ClientKeys([entry], None)) as door,
    ):
        for number, path in enumerate(HOSTILE):
            for key in ("secret", f"wrong-{number}", '"}\\'):
                for method in ("POST", "BREW", "PROPFIND"):
                    body = b'{"model":"m%d","messages":[]}' % number
                    async with connect(door.port) as client:
                        raw = path.encode().decode("latin-1")
                        await client.send(method, raw, [("x-api-key", key)], body)
                        await client.head()
        await ask(door, headers=[("x-api-key", "secret")])
        await door.settled()
    apis = {api for api, _ in door.counters.requests}
    assert apis <= set(Api)
    assert {status for _, status in door.counters.requests} <= STATUSES
    assert set(door.counters.retries) <= set(RetryReason)
    assert set(door.guard.ended) <= set(ConnectionEnd)


@pytest.mark.parametrize(
    "name", ["http://w0", 'a"b', "a\nb", "x" * 129, "", "é", "{}", "a b", "\x00"]
)
def test_a_worker_of_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="name"):
        WorkerEntry.model_validate({"url": "http://10.0.0.1:8000", "name": name})


def test_a_breaker_stands_in_one_state() -> None:
    with fleet() as one:
        worker = one.learn()
        samples = samples_of(one)
        assert stands(samples, "breaker_state", worker="w0", state="closed") == 1
        assert stands(samples, "breaker_state", worker="w0", state="open") == 0
        while stands(samples_of(one), "breaker_state", worker="w0", state="open") == 0:
            one.registry.attempt_ended(Rank(worker), OutcomeKind.WORKER_ERROR, one.clock.now)
        assert stands(samples_of(one), "breaker_state", worker="w0", state="closed") == 0


def test_every_family_is_scraped_once_and_parses() -> None:
    with fleet() as one:
        one.learn()
        text = exposition(sources_of(one)).decode()
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names))
    for needed in (
        "requests",
        "ttft_seconds",
        "time_per_output_token_seconds",
        "retries",
        "breaker_state",
        "leases_open",
        "cached_tokens_predicted",
        "cached_tokens_reported",
        "reused_blocks",
        "reused_blocks_weighted",
        "access_log_lines",
        "trace_spans",
    ):
        assert f"kvroute_{needed}" in names


METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
PATHS = ("/", "/metrics/", "/metrics/x", "//metrics", "/METRICS", "/workers", "/health", "/debug/x")


async def test_the_metrics_port_is_read_and_nothing_else() -> None:
    with fleet() as one, ThreadPoolExecutor(1) as executor:
        transport = httpx.ASGITransport(MetricsApp(sources_of(one), executor))
        async with httpx.AsyncClient(transport=transport, base_url="http://m") as client:
            shown = await client.get("/metrics?name=x")
            assert (shown.status_code, "kvroute_workers" in shown.text) == (200, True)
            head = await client.head("/metrics")
            assert (head.status_code, head.headers["content-length"] > "0") == (200, True)
            for method in METHODS:
                refused = await client.request(method, "/metrics", content=b"x" * 10_000)
                assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
            for path in PATHS:
                statuses = [
                    (await client.request(method, f"http://m{path}")).status_code
                    for method in ("GET", *METHODS)
                ]
                assert set(statuses) == {404}, path
            several = await asyncio.gather(*[client.get("/metrics") for _ in range(5)])
            assert {one.status_code for one in several} == {200}
