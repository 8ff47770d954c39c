"""Numbers, bytes and replay of published batches."""

import pytest

from protocol import AllBlocksCleared, BlockRemoved, KvEvent, ReplayEnd, ReplayReply, decode_batch
from worker.batch_log import BatchLog

CLEAR: list[KvEvent] = [AllBlocksCleared()]


def filled(num_batches: int, buffer_steps: int = 100) -> BatchLog:
    """A log after some batches."""
    log = BatchLog(0, "", buffer_steps)
    for _ in range(num_batches):
        log.append(CLEAR, 1.0)
    log.check()
    return log


def test_numbers_are_dense_and_empty_batches_take_none() -> None:
    log = BatchLog(0, "kv", 10)
    sent = [log.append(events, 1.0) for events in ([], CLEAR, [], CLEAR)]
    assert [message.seq if message else None for message in sent] == [None, 0, None, 1]
    assert log.last_seq == 1
    log.check()


def test_before_the_first_batch_there_is_no_number() -> None:
    assert BatchLog(0, "", 10).last_seq is None


def test_batch_names_rank_and_time() -> None:
    events: list[KvEvent] = [BlockRemoved([1, 2], "GPU"), AllBlocksCleared()]
    message = BatchLog(3, "kv", 10).append(events, 12.5)
    assert message is not None
    assert message.topic == b"kv"
    batch = decode_batch(message.payload)
    assert (batch.ts, batch.dp_rank, batch.events) == (12.5, 3, events)


@pytest.mark.parametrize(
    ("num_batches", "buffer_steps", "first_seq", "expected"),
    [
        (0, 10, 0, []),
        (3, 10, 0, [0, 1, 2]),
        (3, 10, 2, [2]),
        (3, 10, 3, []),
        (3, 10, 99, []),
        (5, 2, 0, [3, 4]),
        (5, 2, 3, [3, 4]),
        (5, 2, 4, [4]),
        (5, 1, 0, [4]),
    ],
)
def test_replay(num_batches: int, buffer_steps: int, first_seq: int, expected: list[int]) -> None:
    *replies, end = filled(num_batches, buffer_steps).replay(first_seq)
    assert isinstance(end, ReplayEnd)
    assert [reply.seq for reply in replies if isinstance(reply, ReplayReply)] == expected
