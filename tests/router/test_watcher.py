"""Workers learned and watched over real HTTP: late, changing, dying, coming back."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from loadgen.fleet import free_ports
from protocol import EventSource, Rank, WorkerId, WorkerSpec
from router.breaker import BreakerLimits
from router.discovery import NamedEvents
from router.hops import Hops
from router.probe import ProbeError, ProbeTimeouts, open_prober
from router.registry import RegistryLimits
from router.shelf import PromptShelf, Rung, Shelved
from router.tokenize_route import open_tokenize_route
from router.tokenizer_proof import Prover
from router.upstream import UpstreamError
from router.watcher import Watcher, WatchTimes, retry_pause_s
from router.worker_record import WorkerState
from scoring import OutcomeKind
from tests.router.brains import TestFleet, fleet
from tests.router.stub_engine import StubEngine, stub_engine, until
from tests.router.stub_worker import Peer, answering, response, stub_worker

TIMEOUTS = ProbeTimeouts(1.0, 1.0)
HOPS = Hops("here")
FAST = WatchTimes(interval_s=0.02, refresh_s=0.05)


@asynccontextmanager
async def watching(one: TestFleet, times: WatchTimes = FAST) -> AsyncIterator[Watcher]:
    """A watcher that runs."""
    async with (
        open_prober(TIMEOUTS, "t0ken", HOPS) as prober,
        open_tokenize_route(None, HOPS, 1.0) as route,
    ):
        shelf, prover = one.brains.shelf, Prover(route, 1.0)
        watcher = Watcher(one.registry, shelf, prober, times, Random(0), prover=prover)
        task = asyncio.get_running_loop().create_task(watcher.run())
        try:
            yield watcher
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def add(one: TestFleet, engine: StubEngine) -> WorkerId:
    worker = WorkerId(engine.name)
    one.registry.add(worker, engine.url, one.clock.now)
    return worker


def state(one: TestFleet, worker: WorkerId) -> WorkerState:
    return one.registry.record(worker).state


async def test_a_stuck_worker_delays_no_other() -> None:
    async def never(peer: Peer) -> None:
        await peer.gone()

    with fleet() as one:
        async with stub_engine() as good, stub_worker(never) as stuck, watching(one) as watcher:
            one.registry.add(WorkerId("stuck"), stuck.url, 0)
            worker = add(one, good)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            assert state(one, WorkerId("stuck")) is WorkerState.PENDING
            assert good.worker.requests[0].values("authorization") == ["Bearer t0ken"]


async def test_a_worker_that_comes_late_is_learned_and_why_it_was_not_is_told() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            engine.is_healthy = False
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: one.registry.record(worker).num_attempts >= 2)
            assert "/health" in (one.registry.record(worker).error or "")
            engine.is_healthy = True
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            assert one.registry.record(worker).error is None


async def test_a_refused_connection_is_called_that() -> None:
    (port,) = free_ports(1)
    async with open_prober(TIMEOUTS, None, HOPS) as prober:
        why = await prober.why_unhealthy(f"http://127.0.0.1:{port}")
    assert why == f"http://127.0.0.1:{port}/health: connection refused"


async def test_a_url_with_the_clients_path_is_told_so() -> None:
    async with (
        stub_worker(answering(response(b"", status=404))) as worker,
        open_prober(TIMEOUTS, None, HOPS) as prober,
    ):
        with pytest.raises(ProbeError, match="/v1/health is not there; a worker's URL is without"):
            await prober.describe(WorkerId("w"), f"{worker.url}/v1")


async def test_what_is_no_engine_stays_pending_with_its_reason() -> None:
    for data in (response(b"hello"), response(b"", status=401), b"nonsense\r\n\r\n"):
        with fleet() as one:
            async with stub_worker(answering(data)) as other, watching(one) as watcher:
                one.registry.add(WorkerId("x"), other.url, 0)
                watcher.wake()
                await until(lambda: one.registry.record(WorkerId("x")).num_attempts >= 1)
                assert one.registry.record(WorkerId("x")).error
                assert state(one, WorkerId("x")) is WorkerState.PENDING


async def test_a_worker_that_changes_is_learned_again() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            cards = engine.pages["/v1/models"]["data"]  # type: ignore[index]
            cards.append({"id": "lora", "parent": "m"})
            await until(lambda: one.plan("lora") == worker)


async def test_a_worker_that_tokenizes_for_others_is_asked_once_in_a_while() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            engine.pages["/tokenize"] = {"tokens": [1, 2, 3]}
            worker = add(one, engine)
            watcher.wake()
            shelf = one.brains.shelf
            await until(lambda: shelf.shelved("m").rung is Rung.ASKED)
            cards = engine.pages["/v1/models"]["data"]  # type: ignore[index]
            num_models = len(engine.worker.requests)
            await until(lambda: len(engine.worker.requests) > num_models + 20)
            asked = [r for r in engine.worker.requests if r.target == "/tokenize"]
            assert len(asked) == 3  # a text, and two chats
            cards.append({"id": "lora", "parent": "m"})
            await until(lambda: one.plan("lora") == worker)
            assert shelf.asked("lora") is not None
            one.registry.remove(worker)
            assert shelf.asked("m") is None


async def test_named_events_are_followed_whatever_the_engine_says() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            worker, named = WorkerId(engine.name), NamedEvents("tcp://*:5557", topic="kv")
            one.registry.add(worker, engine.url, one.clock.now, named)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            (spec,) = one.registry.specs()
            assert spec.sources == (EventSource(Rank(worker), "tcp://127.0.0.1:5557", None, "kv"),)


async def test_a_dead_worker_is_excluded_and_restored_unaided() -> None:
    with fleet(RegistryLimits(health_threshold=2)) as one:
        async with stub_engine() as engine, watching(one) as watcher:
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            engine.is_healthy = False
            await until(lambda: state(one, worker) is WorkerState.UNHEALTHY)
            engine.is_healthy = True
            await until(lambda: state(one, worker) is WorkerState.SERVING)


def sleep_state(*, is_awake: bool) -> str:
    """vLLM's metric."""
    name = 'vllm:engine_sleep_state{engine="0",model_name="m",sleep_state'
    return f'{name}="awake"}} {is_awake:d}.0\n{name}="discard_all"}} {not is_awake:d}.0\n'


@pytest.mark.parametrize(
    ("route", "is_sglang"),
    [
        ("/metrics", True),
        ("/metrics", False),
        ("/is_sleeping", False),  # routes of vLLM alone
        ("/is_paused", False),
    ],
)
async def test_an_engine_that_sleeps_is_no_candidate_until_it_wakes(
    route: str, *, is_sglang: bool
) -> None:
    def say(*, is_awake: bool) -> None:
        name = route.removeprefix("/")
        text = sleep_state(is_awake=is_awake)
        engine.pages[route] = text if route == "/metrics" else {name: not is_awake}

    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            if not is_sglang:
                engine.pages["/version"] = {"version": "0.32.0"}
                del engine.pages["/server_info"]
            say(is_awake=True)
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            for _ in range(2):
                assert one.plan() == worker
                say(is_awake=False)
                await until(lambda: state(one, worker) is WorkerState.SLEEPING)
                assert one.plan() == ""
                say(is_awake=True)
                await until(lambda: state(one, worker) is WorkerState.SERVING)


@pytest.mark.parametrize("route", ["/metrics", "/is_sleeping", "/is_paused"])
async def test_vllm_may_come_to_say_that_it_sleeps(route: str) -> None:
    """Nothing told of sleep when it was learned, and it is not learned again soon."""
    with fleet() as one:
        async with stub_engine() as engine, watching(one, WatchTimes(0.02, 1_000.0)) as watcher:
            del engine.pages["/server_info"]
            engine.pages["/version"] = {"version": "0.32.0"}
            worker = WorkerId(engine.name)
            one.registry.add(worker, engine.url, 0.0)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            says_so = sleep_state(is_awake=False) if route == "/metrics" else {route[1:]: True}
            engine.pages[route] = says_so
            await until(lambda: state(one, worker) is WorkerState.SLEEPING)


@pytest.mark.parametrize("route", ["/metrics", "/is_sleeping", "/is_paused"])
async def test_sleep_is_asked_for_with_each_probe(route: str) -> None:
    """Not only when a worker is learned again, half a minute later."""
    name = route.removeprefix("/")
    awake: object = sleep_state(is_awake=True) if name == "metrics" else {name: False}
    asleep: object = sleep_state(is_awake=False) if name == "metrics" else {name: True}
    with fleet() as one:
        async with stub_engine() as engine, watching(one, WatchTimes(0.02, 1_000.0)) as watcher:
            del engine.pages["/server_info"]
            engine.pages |= {"/version": {"version": "1"}, route: awake}
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            engine.pages[route] = asleep
            await until(lambda: state(one, worker) is WorkerState.SLEEPING)
            engine.pages[route] = awake if name == "metrics" else ["odd"]
            await until(lambda: state(one, worker) is WorkerState.SERVING)


async def test_a_worker_that_requests_cannot_connect_to_is_probed_at_once() -> None:
    """And takes requests again as soon as it is back, whatever its breaker's cool-down."""
    breaker = BreakerLimits(num_faults=2, cool_down_s=1_000, max_cool_down_s=1_000)
    with fleet(RegistryLimits(health_threshold=2, breaker=breaker)) as one:
        async with stub_engine() as engine, watching(one, WatchTimes(3_600, 3_600)) as watcher:
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            engine.is_healthy = False
            for _ in range(2):
                one.registry.attempt_ended(Rank(worker), OutcomeKind.CONNECT_FAILED, 0.0)
            assert state(one, worker) is WorkerState.BREAKER_OPEN
            await until(lambda: state(one, worker) is WorkerState.UNHEALTHY)
            engine.is_healthy = True
            await until(lambda: state(one, worker) is WorkerState.SERVING)


@pytest.mark.parametrize(
    ("in_doubt_s", "pause_s"), [(0, 0.25), (1, 0.25), (2, 0.5), (4, 1), (8, 2), (1_000, 2)]
)
def test_a_worker_is_asked_again_after_a_quarter_of_its_outage(
    in_doubt_s: float, pause_s: float
) -> None:
    assert retry_pause_s(in_doubt_s, interval_s=2.0) == pause_s
    assert retry_pause_s(in_doubt_s, interval_s=0.1) == 0.1


async def test_a_removed_worker_is_watched_no_longer() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            one.registry.remove(worker)
            watcher.wake()
            await asyncio.sleep(0.05)
            before = len(engine.worker.requests)
            await asyncio.sleep(0.1)
            assert len(engine.worker.requests) == before


async def test_a_fault_of_the_router_ends_no_watch() -> None:
    """The registry fails at a probe: its record is broken for a while."""
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            record = one.registry.record(worker)
            health, record.health = record.health, None  # type: ignore[assignment]
            num_probes = requests_of(engine, "/health")
            await until(lambda: requests_of(engine, "/health") > num_probes + 3)
            record.health = health
            engine.is_healthy = False
            await until(lambda: state(one, worker) is WorkerState.UNHEALTHY)


async def test_a_worker_that_comes_again_at_once_is_learned_again() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one, WatchTimes(60, 60)) as watcher:
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            one.registry.remove(worker)
            add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.SERVING)


class SlowShelf(PromptShelf):
    """Loads as slowly as it is told to."""

    def __init__(self) -> None:
        super().__init__({})
        self.started: list[str] = []
        self.go_on = threading.Event()

    def load(self, spec: WorkerSpec) -> Shelved:
        """Wait, then load."""
        self.started.append(spec.worker)
        assert self.go_on.wait(10)
        return super().load(spec)


async def test_a_load_whose_worker_went_is_waited_for() -> None:
    shelf = SlowShelf()
    with fleet() as one:
        async with (
            stub_engine() as first,
            stub_engine() as second,
            open_prober(TIMEOUTS, None, HOPS) as prober,
        ):
            watcher = Watcher(one.registry, shelf, prober, FAST, Random(0))
            task = asyncio.get_running_loop().create_task(watcher.run())
            gone = add(one, first)
            watcher.wake()
            await until(lambda: shelf.started == [gone])
            one.registry.remove(gone)
            worker = add(one, second)
            watcher.wake()
            await until(lambda: requests_of(second, "/server_info") > 0)
            await asyncio.sleep(0.05)
            assert shelf.started == [gone]
            shelf.go_on.set()
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def requests_of(engine: StubEngine, target: str) -> int:
    return sum(request.target == target for request in engine.worker.requests)


async def forever(one: TestFleet, worker: WorkerId) -> None:
    with one.outages.wait_for(worker):
        await asyncio.Event().wait()


async def test_a_frozen_worker_is_soon_out_and_its_requests_are_told() -> None:
    """Probes that get no answer end by their own bound, and follow each other quickly."""

    async def freezing(peer: Peer) -> None:
        if is_frozen.is_set():
            await peer.gone()
        elif peer.request.target == "/v1/models":
            await peer.send(response(b'{"data":[{"id":"m"}]}'))
        else:
            is_health = peer.request.target == "/health"
            await peer.send(response(b"{}", status=200 if is_health else 404))

    is_frozen = asyncio.Event()
    with fleet(RegistryLimits(health_threshold=3)) as one:
        async with (
            stub_worker(freezing) as worker,
            open_prober(ProbeTimeouts(1.0, 0.02), None, HOPS) as prober,
        ):
            watcher = Watcher(one.registry, one.brains.shelf, prober, FAST, Random(0))
            name = WorkerId("w0")
            one.registry.add(name, worker.url, 0)
            task = asyncio.get_running_loop().create_task(watcher.run())
            await until(lambda: state(one, name) is WorkerState.SERVING)
            is_frozen.set()
            with pytest.raises(UpstreamError):
                await forever(one, name)
            assert state(one, name) is WorkerState.UNHEALTHY
            is_frozen.clear()
            await until(lambda: state(one, name) is WorkerState.SERVING)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
