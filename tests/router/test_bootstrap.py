"""A router that starts takes over from one that runs: real event sockets, the sibling's port in process."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import httpx
import orjson
import pytest

from indexer import Trust
from protocol import BlockStored, EventBatch, Rank, WorkerId
from router.bootstrap import Bootstrap, BootstrapOutcome, Heirs
from router.config import ConfigError, load_config
from router.registry import Registry, RegistryLimits
from router.shelf import Rung, Shelved
from router.sibling import SiblingError, Siblings
from tests.indexer.loopback import Changes, LoopbackPublisher
from tests.router.brains import described, fleet, source
from tests.router.control_port import control
from tests.router.followers import Router, Told, heir, lines_of, sibling_that_knows, worker_of

URL = "http://sibling"


@pytest.mark.parametrize("replays", [True, False])
async def test_a_rank_is_taken_over_and_goes_on(replays: bool) -> None:
    """With a replay of the mark, or with the first live number, the claims are exact again."""
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    spec = worker_of(publisher, replays=replays)
    try:
        async with sibling_that_knows(publisher, spec) as sibling:
            publisher.first_kept = 8  # the engine's own buffer no longer reaches back
            router = Router(changes)
            bootstrap = heir(router, Told(one=await lines_of(sibling)), "one")
            async with router.running(bootstrap.run()):
                router.follow(spec, bootstrap)
                await router.until(lambda: router.blocks("w") == set(range(10)))
                await router.until(lambda: publisher.num_subscribers > 1)
                await router.until(lambda: router.intake.is_connected(spec.sources[0]))
                publisher.publish(10)
                await router.until(lambda: router.blocks("w") == set(range(11)))
                await router.until(lambda: router.trust("w") is Trust.EXACT)
                assert bootstrap.outcomes == {BootstrapOutcome.LOADED: 1}
                router.index.check()
    finally:
        publisher.close()


async def test_what_was_missed_in_between_is_a_loss() -> None:
    """Without a replay socket, first live number above mark + 1: not exact."""
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    spec = worker_of(publisher, replays=False)
    try:
        async with sibling_that_knows(publisher, spec) as sibling:
            lines = await lines_of(sibling)
            publisher.publish(10)
            router = Router(changes)
            bootstrap = heir(router, Told(one=lines), "one")
            async with router.running(bootstrap.run()):
                router.follow(spec, bootstrap)
                await router.until(lambda: router.intake.is_connected(spec.sources[0]))
                await router.until(lambda: publisher.num_subscribers > 1)
                assert router.trust("w") is Trust.JOINED
                publisher.publish(11)
                await router.until(lambda: router.blocks("w") == {*range(10), 11})
                status = router.intake.status(spec.sources[0].rank)
                assert status is not None
                assert (status.trust, status.counters.lost_batches) == (Trust.DEGRADED, 1)
    finally:
        publisher.close()


async def test_an_engine_that_has_restarted_is_recovered_from_its_own_replay() -> None:
    changes = Changes()
    old, new = LoopbackPublisher(changes), LoopbackPublisher(changes, stamp=1e6)
    try:
        async with sibling_that_knows(old, worker_of(old)) as sibling:
            lines = await lines_of(sibling)
        spec = worker_of(new)
        for block in (100, 101):
            new.publish(block)
        router = Router(changes)
        bootstrap = heir(router, Told(one=lines), "one")
        async with router.running(bootstrap.run()):
            router.follow(spec, bootstrap)
            await router.until(lambda: router.blocks("w") == {100, 101})
            await router.until(lambda: router.trust("w") is Trust.EXACT)
    finally:
        old.close()
        new.close()


@pytest.mark.parametrize("case", ["hangs", "cut", "garbage", "absent", "empty", "other version"])
async def test_a_bad_sibling_costs_its_share_of_the_time_and_the_next_is_asked(case: str) -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    spec = worker_of(publisher)
    try:
        async with sibling_that_knows(publisher, spec) as sibling:
            publisher.first_kept = 8
            lines = await lines_of(sibling)
            bad: Sequence[bytes] | None = {
                "hangs": None,
                "cut": lines[:3],
                "garbage": [b"<html>"],
                "absent": [],
                "empty": [lines[0], lines[-1].replace(b":1", b":0")],
                "other version": [lines[0].replace(b"2", b"3"), *lines[1:]],
            }[case]
            router = Router(changes)
            bootstrap = heir(router, Told(bad=bad, good=lines), "bad", "good", timeout_s=0.6)
            async with router.running(bootstrap.run()):
                router.follow(spec, bootstrap)
                await router.until(lambda: router.blocks("w") == set(range(10)))
                await router.until(lambda: router.trust("w") is Trust.EXACT)
                first = {"hangs": BootstrapOutcome.TIMED_OUT, "empty": BootstrapOutcome.UNKNOWN}
                assert bootstrap.outcomes == {
                    first.get(case, BootstrapOutcome.FAILED): 1,
                    BootstrapOutcome.LOADED: 1,
                }
                router.index.check()
    finally:
        publisher.close()


async def test_without_any_sibling_that_answers_ranks_recover_by_themselves() -> None:
    """And one that hangs for one worker delays no other."""
    changes = Changes()
    slow, quick = LoopbackPublisher(changes), LoopbackPublisher(changes)
    try:
        for block in range(3):
            slow.publish(block)
            quick.publish(block)
        router = Router(changes)
        bootstrap = heir(router, Told(slow=None), "one", timeout_s=30.0)
        async with router.running(bootstrap.run()):
            router.follow(worker_of(slow, "slow"), bootstrap)
            router.follow(worker_of(quick, "quick"), bootstrap)
            await router.until(lambda: router.trust("quick") is Trust.EXACT)
            assert router.blocks("quick") == {0, 1, 2}
            assert router.trust("slow") is Trust.NONE
        assert bootstrap.outcomes == {BootstrapOutcome.FAILED: 1}
    finally:
        slow.close()
        quick.close()


async def test_a_sibling_that_joined_late_is_believed_where_nothing_can_be_replayed_alone() -> None:
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    with_replay, without = worker_of(publisher), worker_of(publisher, replays=False)
    try:
        for block in range(5):
            publisher.publish(block)
        sibling = Router(changes)
        async with sibling.running():
            sibling.follow(without)
            await sibling.until(lambda: publisher.num_subscribers > 0)
            publisher.publish(5)
            await sibling.until(lambda: sibling.trust("w") is Trust.JOINED)
            lines = await lines_of(sibling)
        for spec, outcome in (
            (without, BootstrapOutcome.LOADED),
            (with_replay, BootstrapOutcome.UNKNOWN),
        ):
            router = Router(changes)
            bootstrap = heir(router, Told(one=lines), "one")
            async with router.running(bootstrap.run()):
                router.follow(spec, bootstrap)
                await router.until(lambda: bootstrap.outcomes == {outcome: 1})  # noqa: B023
                if outcome is BootstrapOutcome.UNKNOWN:
                    await router.until(lambda: router.trust("w") is Trust.EXACT)  # noqa: B023
    finally:
        publisher.close()


async def test_a_sibling_is_asked_over_its_control_port_with_its_token() -> None:
    with fleet() as one:
        worker = one.learn("w0")
        store = BlockStored([1, 2], None, [1, 2, 3, 4, 5, 6, 7, 8], 4, "GPU")
        one.brains.index.apply(Rank(worker), EventBatch(0.0, [store]), 1.0, 3)
        async with control(one, token="secret") as (client, _):
            transport = client._transport
            told = Siblings("secret", 5.0, transport=transport)
            lines = [line async for line in told.dump("http://control", "w0")]
            assert lines[0] == b'{"kind":"header","format":2}'
            assert any(b'"hashes":[1,2]' in line for line in lines)
            assert lines[-1] == b'{"kind":"end","ranks":1,"pools":0}'
            with pytest.raises(SiblingError, match="answers 401"):
                await anext(
                    Siblings("other", 5.0, transport=transport).dump("http://control", "w0")
                )
            with pytest.raises(SiblingError, match="answers 401"):
                await anext(Siblings(None, 5.0, transport=transport).dump("http://control", "w0"))


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a\n", b"b"], [b"a", b"b"]),
        ([b"a", b"b\nc", b"\n"], [b"ab", b"c"]),
        ([b"\n"], [b""]),
        ([], []),
    ],
)
async def test_lines_of_any_chunks(chunks: list[bytes], lines: list[bytes]) -> None:
    class Chunks(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Chunks()))
    told = Siblings(None, 1.0, transport=transport).dump(URL, "w")
    assert [line async for line in told] == lines


async def test_a_line_without_an_end_and_a_broken_answer() -> None:
    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * (1 << 20)

    class Broken(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"a\n"
            raise httpx.ReadError("reset")

    for stream, message in ((Endless(), "without an end"), (Broken(), "reset")):
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=stream))  # noqa: B023
        told = Siblings(None, 1.0, transport=transport).dump(URL, "w")
        with pytest.raises(SiblingError, match=message):
            _ = [line async for line in told]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
async def test_a_dump_that_is_compressed_is_refused_unread(encoding: str) -> None:
    """A few bytes of it may be gigabytes."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        headers = {"Content-Encoding": encoding}
        return httpx.Response(200, headers=headers, stream=Bomb())

    class Bomb(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(3):
                yield gzip.compress(b"x\n" * (32 << 20))
            raise AssertionError("it is read")

    told = Siblings(None, 1.0, transport=httpx.MockTransport(answer)).dump(URL, "w")
    with pytest.raises(SiblingError, match="encoded"):
        _ = [line async for line in told]


async def test_a_line_in_many_chunks() -> None:
    """15 MB in 15,000 of them: what is held is not copied with each."""

    class Slow(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(15_000):
                yield b"x" * 1_000
            yield b"\ny"

    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Slow()))
    async with asyncio.timeout(10.0):
        told = [line async for line in Siblings(None, 1.0, transport=transport).dump(URL, "w")]
    assert told == [b"x" * 15_000_000, b"y"]


def test_nothing_is_taken_from_a_new_workers_sockets_until_it_is_taken_over() -> None:
    with fleet() as one:
        brains = one.brains
        heirs = Heirs(brains.index, brains.intake, brains.subscriber)
        bootstrap = Bootstrap(heirs, Told(), ["http://sibling"], 5.0, one.clock)
        registry = Registry(replace(brains, bootstrap=bootstrap), RegistryLimits())
        registry.add(WorkerId("w0"), "http://w0", 0.0)
        where = source(has_replay=True)
        no_tokenizer = Shelved(Rung.NONE)
        registry.learned(WorkerId("w0"), described("w0", sources=(where,)), no_tokenizer, 0.0)
        assert brains.subscriber.is_paused(where)
        assert set(registry.bootstrap_outcomes) == set(BootstrapOutcome)
        registry.remove(WorkerId("w0"))
        assert not brains.subscriber.is_paused(where)


@pytest.mark.parametrize(
    ("value", "siblings"),
    [
        ("http://a:8081/, http://b:8081", ("http://a:8081", "http://b:8081")),
        ('["http://a:8081"]', ("http://a:8081",)),
        ("", ()),
    ],
)
def test_siblings_from_the_environment(value: str, siblings: tuple[str, ...]) -> None:
    environ = {"KVROUTE_BOOTSTRAP__SIBLINGS": value, "KVROUTE_BOOTSTRAP__TOKEN": "secret"}
    config = load_config(None, {}, environ)
    assert config.bootstrap.siblings == siblings
    assert "secret" not in repr(config)


@pytest.mark.parametrize("url", ["tcp://a:1", "a:8081", "http://", "http://a/?x=1"])
def test_what_is_no_sibling(url: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.siblings"):
        load_config(None, {"bootstrap": {"siblings": [url]}}, {})


async def test_without_a_digest_of_the_mark_nothing_is_taken_over() -> None:
    """For nothing would tell whether the publisher is the same one."""
    changes = Changes()
    publisher = LoopbackPublisher(changes)
    spec = worker_of(publisher)
    try:
        async with sibling_that_knows(publisher, spec) as sibling:
            lines = await lines_of(sibling)
            bare = orjson.dumps({**orjson.loads(lines[1]), "digests": []})
            router = Router(changes)
            bootstrap = heir(router, Told(one=[lines[0], bare, *lines[2:]]), "one")
            async with router.running(bootstrap.run()):
                router.follow(spec, bootstrap)
                await router.until(lambda: router.trust("w") is Trust.EXACT)
            assert bootstrap.outcomes == {BootstrapOutcome.UNKNOWN: 1}
    finally:
        publisher.close()
