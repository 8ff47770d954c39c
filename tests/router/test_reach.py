"""Where the router lets itself be sent, as hosts are written and as names lead."""

import asyncio
import json
import socket
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import EventSource, Rank, WorkerId, WorkerSpec
from router.config import load_config
from router.configured import reach as configured_reach
from router.dialer import Address, Dialer
from router.discovery import Discovered
from router.reach import CheckedNames, Reach, ReachConfig, ReachError, Told
from tests.router.stub_engine import stub_engine
from tests.router.stub_worker import answering, response, stub_worker
from tests.router.test_service import service


def is_allowed(host: str, rules: ReachConfig | None = None) -> bool:
    """As written in a URL."""
    try:
        Reach(rules or ReachConfig()).refuse_worker(f"http://{host}:30000/base")
    except ReachError:
        return False
    return True


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.8.9.10", "10.1.2.3", "172.16.0.1", "172.31.255.254", "192.168.1.1", "100.64.0.1",
        "[::1]", "[fd12:3456::1]", "[::ffff:10.0.0.1]", "localhost", "sglang-0.sglang.serving.svc.cluster.local",
        "gpu_1", "2130706433", "0x7f000001", "127.1",
    ],
)  # fmt: skip
def test_what_fits_a_private_cluster_may_be_reached(host: str) -> None:
    assert is_allowed(host)


@pytest.mark.parametrize(
    "host",
    [
        # metadata of clouds, as a system takes it
        "169.254.169.254", "169.254.169.254.", "2852039166", "0xa9fea9fe", "0XA9FEA9FE", "0251.0376.0251.0376", "169.254.43518",
        "169.16689662", "0xa9.0xfe.0xa9.0xfe", "169.254.170.2", "100.100.100.200", "192.0.0.192",
        "[fd00:ec2::254]", "[fd00:0ec2:0:0::0254]", "[fd20:ce::254]",
        # the same within IPv6
        "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[0:0:0:0:0:ffff:a9fe:a9fe]", "[64:ff9b::169.254.169.254]",
        "[2002:a9fe:a9fe::1]", "[::a9fe:a9fe]",
        # link-local, multicast, no host
        "[fe80::1]", "[fe80::1%25eth0]", "[ff02::1]", "224.0.0.1", "255.255.255.255", "0.0.0.0", "0", "[::]", "0.1.2.3",
        # no names, which only some systems look up
        "-a.example", "a-", ".a", "",
        # public
        "8.8.8.8", "134744072", "172.32.0.1", "[2606:4700::1111]", "[64:ff9b::8.8.8.8]", "[2002:0808:0808::1]",
    ],
)  # fmt: skip
def test_what_does_not_may_not(host: str) -> None:
    if host == "169.254.169.254.":  # a name to us; the system says what it is
        with pytest.raises(ReachError):
            Reach(ReachConfig()).admitted(host, ["169.254.169.254"])
    else:
        assert not is_allowed(host)


def spellings(address: IPv4Address) -> list[str]:
    """All that systems, or other addresses, take for it."""
    number, parts = int(address), address.packed
    bare = [
        str(address),
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(f"0{part:o}" for part in parts),
        ".".join(map(hex, parts)),
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
    ]
    within = [f"::ffff:{address}", f"64:ff9b::{address}", f"::{address}"]
    within.append(str(IPv6Address(0x2002 << 112 | number << 80 | 1)))
    return bare + [f"[{one}]" for one in within] + [f"[{IPv6Address(one)}]" for one in within]


REFUSED = [
    st.ip_addresses(v=4, network=one) for one in ("169.254.0.0/16", "224.0.0.0/4", "8.0.0.0/8")
]


@given(st.one_of(REFUSED))
def test_no_spelling_of_an_address_gets_it_reached(address: IPv4Address) -> None:
    for host in spellings(address):
        assert not is_allowed(host), host


def test_rules_are_configured() -> None:
    rules = ReachConfig.model_validate(
        {"networks": "0.0.0.0/0, ::/0", "refused": ["10.0.0.0/8"], "hosts": ["*.gpu.internal"]}
    )
    hosts = ("8.8.8.8", "169.254.169.254", "[2606:4700::1111]", "a.gpu.internal", "A.GPU.internal")
    assert all(is_allowed(host, rules) for host in hosts)
    for host in (
        "10.0.0.1",
        "[::ffff:10.0.0.1]",
        "gpu.internal",
        "a.gpu.internal.evil.example",
        "localhost",
    ):
        assert not is_allowed(host, rules)


async def test_names_are_judged_by_where_they_lead_now() -> None:
    """A name that leads elsewhere the second time is not followed, and of several addresses the good ones are kept."""
    answers = iter(
        [["10.0.0.1"], ["10.0.0.1", "169.254.169.254", "fe80::1%eth0"], ["169.254.169.254"]]
    )

    async def resolve(host: str) -> list[str]:
        return next(answers)

    reach = Reach(ReachConfig())
    names = CheckedNames(reach, resolve)
    assert await names("rebinding.example") == ["10.0.0.1"]
    assert await names("rebinding.example") == ["10.0.0.1"]
    with pytest.raises(
        ReachError, match=r"leads to 169.254.169.254: .* 169.254.0.0/16, of reach.refused"
    ):
        await names("rebinding.example")
    assert reach.refusals == {Told.NAME: 1}


async def test_connections_go_to_addresses_that_were_judged() -> None:
    found = ["169.254.169.254", "127.0.0.1"]
    tried: list[str] = []

    async def resolve(host: str, port: int) -> list[Address]:
        return [Address(socket.AF_INET, (one, port)) for one in found]

    async def connect(address: Address) -> socket.socket:
        tried.append(str(address.sockaddr[0]))
        return socket.socket()

    reach = Reach(ReachConfig())
    dialer = Dialer(
        asyncio.get_running_loop(), resolve=resolve, connect=connect, admit=reach.admitted_addresses
    )
    (await dialer.reach("w", 80)).close()
    assert tried == ["127.0.0.1"]
    found.pop()
    with pytest.raises(ReachError):
        await dialer.reach("w", 80)
    assert tried == ["127.0.0.1"]


def test_what_the_configuration_names_may_be_reached_anywhere() -> None:
    config = load_config(
        None,
        {
            "workers": [
                "http://8.8.8.8:1",
                {"url": "http://gpu.example", "events": {"endpoint": "tcp://[fe80::1]:5557"}},
            ],
            "storage": {"pools": [{"name": "p", "events": {"endpoint": "tcp://pool.example:1"}}]},
        },
        {},
    )
    reach = configured_reach(config)
    reach.refuse_worker("http://8.8.8.8:2/", "tcp://[fe80::1]:9", None)
    assert reach.admitted("GPU.example", ["1.2.3.4"]) == ["1.2.3.4"]
    assert reach.admitted("pool.example", ["1.2.3.4"]) == ["1.2.3.4"]
    with pytest.raises(ReachError):
        reach.refuse_worker("http://8.8.4.4:1")
    with pytest.raises(ReachError):
        reach.admitted("other.example", ["1.2.3.4"])


def test_endpoints_that_engines_tell_are_dropped_and_told() -> None:
    def source(
        rank: int, endpoint: str, replay: str | None = None, *, is_bound: bool = False
    ) -> EventSource:
        return EventSource(Rank(WorkerId("w"), rank), endpoint, replay, is_bound=is_bound)

    good = (
        source(0, "tcp://10.0.0.1:5557", "tcp://w:5657"),
        source(1, "tcp://0.0.0.0:5557", is_bound=True),
    )
    bad = (
        source(2, "tcp://169.254.169.254:80"),
        source(3, "tcp://10.0.0.1:5558", "tcp://[fe80::1]:80"),
        source(4, "tcp://2852039166:80"),
    )
    spec = WorkerSpec(WorkerId("w"), "http://w", "m", sources=good + bad)
    reach = Reach(ReachConfig())
    found = reach.reachable(Discovered(spec, num_faults=1, faults=("other",)))
    assert found.spec.sources == good
    assert (found.num_faults, found.faults[0]) == (3, "other")
    assert "event endpoint: 169.254.169.254 may not be reached" in found.faults[1]
    assert reach.refusals == {Told.ENDPOINT: 3}
    assert reach.reachable(Discovered(replace_sources(spec, good))).num_faults == 0


def replace_sources(spec: WorkerSpec, sources: tuple[EventSource, ...]) -> WorkerSpec:
    return WorkerSpec(spec.worker, spec.url, spec.model, sources=sources)


@pytest.mark.parametrize("status", [302, 308])
async def test_no_worker_sends_the_router_elsewhere(status: int) -> None:
    """Whoever answers a probe with another place, is not followed there; a client may follow, if it likes."""
    async with stub_worker(answering(response(b"{}"))) as stranger:
        moved = (("Location", f"{stranger.url}/latest/meta-data"),)
        redirect = answering(response(b"", status=status, headers=moved))
        async with stub_worker(redirect) as bad, stub_engine() as engine, service(engine) as router:
            await router.ready()
            added = await router.control.post("/workers", json={"url": bad.url})
            assert added.status_code == 201
            async with asyncio.timeout(5):
                error = ""
                while f"answers {status}" not in error:
                    await asyncio.sleep(0.01)
                    error = json.dumps((await router.workers())[1])
        assert bad.requests
        assert not stranger.requests


async def test_workers_are_refused_or_never_called() -> None:
    """As they are written, or as their names lead; the one that is configured is served from where it is."""
    told = {"endpoint_host": "169.254.169.254", "endpoint_port_base": 5557, "topic": ""}
    async with (
        stub_engine(kv_events=told) as engine,
        stub_engine() as stranger,
        service(engine, reach={"networks": ["10.0.0.0/8"]}) as router,
    ):
        await router.ready()
        (shown,) = await router.workers()
        assert "event endpoint: 169.254.169.254 may not be reached" in json.dumps(shown)
        port = stranger.url.rpartition(":")[2]
        for body in (
            {"url": "http://169.254.169.254/"},
            {"url": "http://2130706433:80/"},
            {"url": f"http://[::1]:{port}"},
            {"url": "http://10.0.0.1", "events": {"endpoint": "tcp://169.254.169.254:80"}},
        ):
            refused = await router.control.post("/workers", json=body)
            assert (refused.status_code, "may not be reached" in refused.text) == (400, True)
        added = await router.control.post("/workers", json={"url": f"http://localhost:{port}"})
        assert added.status_code == 201
        error = ""
        async with asyncio.timeout(5):
            while "may not be reached" not in error:
                await asyncio.sleep(0.01)
                error = json.dumps((await router.workers())[1])
        metrics = (await router.control.get("/metrics")).text
        assert 'kvroute_reach_refused_total{told_by="worker"} 4.0' in metrics
        assert 'kvroute_reach_refused_total{told_by="endpoint"} 1.0' in metrics
        assert not stranger.worker.requests
