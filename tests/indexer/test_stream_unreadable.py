"""Payloads that cannot be read, and events in batches that can."""

import pytest

from indexer import LossCause, RecordLoss
from protocol import SkipReason
from tests.indexer.stream_script import play

SCRIPTS = {
    "an unreadable payload that can be replayed": """
        live 0          -> apply 0
        live 1?         -> replay 1             | rebuilding
        reply 1         -> apply 1
        end             ->                      | exact
    """,
    "an unreadable payload that is replayed as it was": """
        live 0          -> apply 0
        live 1?         -> replay 1
        reply 1?        -> lost 1-1
        end             ->                      | degraded
        live 2          -> apply 2
    """,
    "an unreadable payload that is not replayed": """
        live 0          -> apply 0
        live 1?         -> replay 1
        end             -> lost 1-1             | degraded
    """,
    "an unreadable payload during a replay is asked for once": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 3? 4       ->
        reply 1 2       -> apply 1, apply 2
        end             -> replay 3
        reply 3? 4      -> lost 3-3, apply 4
        end             ->                      | degraded
    """,
    "an event that cannot be read is a loss, its neighbours are applied": """
        live 0          -> apply 0
        live 1~         -> apply 1, lost 1-1    | degraded
        live 1~         ->
        live 2          -> apply 2              | degraded
        live 3!         -> apply 3              | exact
    """,
    "a clear beside an event that cannot be read, in unknown order": """
        live 0          -> apply 0
        live 1!~        -> apply 1, lost 1-1    | degraded
    """,
    "an event that cannot be read in the first batch": """
        live 0~         -> apply 0, lost 0-0    | degraded
    """,
    "an event that cannot be read in a replay": """
        live 0          -> apply 0
        live 2~         -> replay 1
        reply 1~ 2~     -> apply 1, lost 1-1, apply 2, lost 2-2
        end             ->                      | degraded
    """,
    "an event of an unknown kind is none of ours": """
        live 0*         -> apply 0              | exact
        live 1*         -> apply 1              | exact
    """,
    "one of each": """
        live 0*~        -> apply 0, lost 0-0    | degraded
    """,
}

WITHOUT_REPLAY = {
    "an unreadable payload": """
        live 0          -> apply 0
        live 1?         -> lost 1-1             | degraded
        live 1?         ->
        live 2          -> apply 2
    """,
    "an unreadable payload before anything else": """
        live 0?         ->                      | joined
        live 1          -> apply 1              | joined
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


@pytest.mark.parametrize("script", WITHOUT_REPLAY.values(), ids=WITHOUT_REPLAY)
def test_without_replay(script: str) -> None:
    play(script, has_replay=False)


def test_what_cannot_be_read_is_counted() -> None:
    counters = play(SCRIPTS["an unreadable payload that is replayed as it was"]).counters
    assert (counters.unreadable, counters.lost_batches, counters.partly_read) == (1, 1, 0)
    stream = play(SCRIPTS["one of each"])
    counters = stream.counters
    assert counters.skipped == {SkipReason.BAD_FIELD: 1, SkipReason.UNKNOWN_EVENT: 1}
    assert (counters.partly_read, counters.losses, counters.lost_batches) == (1, 1, 0)
    assert stream.position.last_loss == RecordLoss(0, 0, LossCause.UNREADABLE)
    counters = play(SCRIPTS["an event of an unknown kind is none of ours"]).counters
    assert (counters.skipped, counters.losses) == ({SkipReason.UNKNOWN_EVENT: 2}, 0)
