"""Event streams of many ranks in one process: time until all are recovered by replay, memory and open files a
rank, CPU a live message that reaches its stream.

Why: a fleet has a thousand ranks, each with three sockets, and a fourth while it is replayed; limits of
descriptors and of ZeroMQ's own are met there first. One publisher in a process of its own serves all of
them, on one port. Baseline in the same run: a single rank.
"""

import asyncio
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psutil
import zmq

from benchmarks.measurement import Measurement, main, measured
from indexer import EventSubscriber, FleetIndex, Intake, SocketLimits, Trust
from protocol import (
    BlockStored,
    EngineKind,
    EventBatch,
    EventSource,
    LiveMessage,
    Rank,
    ReplayEnd,
    ReplayReply,
    WorkerId,
    WorkerSpec,
    encode_batch,
    live_frames,
    parse_replay_request,
    replay_frames,
)
from router.file_limit import raise_file_limit, sockets_within

RANKS_A_WORKER = 8
BLOCK_SIZE = 64
BUFFERED = 20
MESSAGES = 20_000


def _payload(seq: int) -> bytes:
    tokens = list(range(BLOCK_SIZE * seq, BLOCK_SIZE * (seq + 4)))
    hashes = [4 * seq + i for i in range(4)]
    stored = BlockStored(hashes, None, tokens, BLOCK_SIZE, "GPU")
    return encode_batch(EventBatch(float(seq), [stored]))


def _serve(pipe: Connection, num_ranks: int) -> None:
    """The publisher: replays its buffer to whoever asks; publishes when told, to one rank after the other."""
    raise_file_limit()
    payloads = [_payload(seq) for seq in range(BUFFERED)]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    live, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    for socket in (live, router):
        socket.set(zmq.SNDHWM, 0)
    ports = [one.bind_to_random_port("tcp://127.0.0.1") for one in (live, router)]
    pipe.send(ports)
    while True:
        if router.poll(50):
            name, *request = router.recv_multipart()
            for seq in range(parse_replay_request(request), BUFFERED):
                router.send_multipart([name, *replay_frames(b"", ReplayReply(seq, payloads[seq]))])
            router.send_multipart([name, *replay_frames(b"", ReplayEnd())])
        elif pipe.poll():
            if pipe.recv() is None:
                break
            for seq in range(BUFFERED, BUFFERED + MESSAGES // num_ranks):
                body = _payload(seq)
                for number in range(
                    num_ranks
                ):  # at the pace of a busy fleet, some thousands a second
                    live.send_multipart(live_frames(LiveMessage(b"kv@%d@" % number, seq, body)))
    context.destroy(linger=0)


def _specs(num_ranks: int, ports: list[int]) -> list[WorkerSpec]:
    live, replay = (f"tcp://127.0.0.1:{port}" for port in ports)
    specs = []
    for first in range(0, num_ranks, RANKS_A_WORKER):
        worker, size = WorkerId(f"w{first}"), min(RANKS_A_WORKER, num_ranks - first)
        sources = tuple(
            EventSource(Rank(worker, dp), live, replay, f"kv@{first + dp}@") for dp in range(size)
        )
        specs.append(
            WorkerSpec(
                worker,
                f"http://{worker}",
                "m",
                EngineKind.VLLM,
                block_size=BLOCK_SIZE,
                sources=sources,
                num_ranks=size,
            )
        )
    return specs


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(300.0):
        while not is_so():  # noqa: ASYNC110  # a benchmark may poll
            await asyncio.sleep(0.02)


async def _follow(num_ranks: int, pipe: Connection) -> tuple[float, float, float, float]:
    """Recovery s, KiB a rank, files a rank, CPU µs a message."""
    process = psutil.Process()
    index = FleetIndex()
    intake = Intake(index)
    limits = SocketLimits(max_sockets=sockets_within(raise_file_limit()))
    subscriber = EventSubscriber(intake, time.monotonic, limits=limits)
    running = asyncio.ensure_future(subscriber.run())
    await asyncio.sleep(0)
    specs = _specs(num_ranks, pipe.recv())
    ranks = [rank for spec in specs for rank in spec.ranks]
    rss, files, start = process.memory_info().rss, process.num_fds(), time.perf_counter()
    for spec in specs:
        index.add_worker(spec, time.monotonic())
        for source in spec.sources:
            subscriber.subscribe(source)
    await _until(lambda: all(index.trust(rank, 0.0) is Trust.EXACT for rank in ranks))
    recovered_s = time.perf_counter() - start
    await asyncio.sleep(1.5)  # the look behind the first silence is over, its sockets closed
    files_a_rank = (process.num_fds() - files) / num_ranks
    kib_a_rank = (process.memory_info().rss - rss) / num_ranks / 1024
    before = subscriber.counters.messages
    expected = before + MESSAGES // num_ranks * num_ranks
    cpu_s = time.process_time()
    pipe.send("publish")
    await _until(lambda: subscriber.counters.messages >= expected)
    cpu_s = time.process_time() - cpu_s
    assert all(index.trust(rank, 0.0) is Trust.EXACT for rank in ranks), "something was lost"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return recovered_s, kib_a_rank, files_a_rank, cpu_s / (expected - before) * 1e6


def _figures(num_ranks: int) -> tuple[float, float, float, float]:
    ours, theirs = get_context("spawn").Pipe()
    publisher = get_context("spawn").Process(target=_serve, args=(theirs, num_ranks), daemon=True)
    publisher.start()
    try:
        return asyncio.run(_follow(num_ranks, ours))
    finally:
        ours.send(None)
        publisher.join(10.0)
        publisher.kill()


def run(quick: bool) -> list[Measurement]:
    """One and many ranks."""
    num_runs = 1 if quick else 3
    rows: list[Measurement] = []
    peer: Measurement | None = None
    for num_ranks in (1, 256) if quick else (1, 256, 1000):
        found = [_figures(num_ranks) for _ in range(num_runs)]
        recovered, kib, files, cpu = zip(*found, strict=True)
        rows.append(measured(f"recovered_{num_ranks}_ranks", "s", recovered))
        if num_ranks > 1:
            rows.append(measured(f"memory_{num_ranks}_ranks", "KiB/rank", kib))
            rows.append(measured(f"files_{num_ranks}_ranks", "files/rank", files))
        message = measured(f"message_{num_ranks}_ranks", "CPU µs/message", cpu, peer)
        peer = peer or message
        rows.append(message)
    return rows


if __name__ == "__main__":
    main(str(__doc__).split(":", 1)[0], run)
