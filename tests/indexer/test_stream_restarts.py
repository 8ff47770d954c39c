"""Another process under the same address, and what only looks like one."""

import pytest

from indexer import ResetCause
from tests.indexer.stream_script import SMALL, play

SCRIPTS = {
    "a restart at 0": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 0b         -> forget restarted, apply 0 | exact
        live 1b         -> apply 1
    """,
    "a restart that is noticed late is replayed from 0": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        live 2b         -> forget restarted, replay 0 | rebuilding
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
        live 3b         -> apply 3
    """,
    "a restart with a truncated buffer joins late": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        live 3b         -> forget restarted, replay 0
        reply 2b 3b     -> apply 2, apply 3
        end             ->                      | joined
    """,
    "a restart during a replay": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 5          -> replay 3
        live 1b         -> forget restarted, replay 0 | rebuilding
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "one number with two payloads, live": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 2b         -> forget restarted, replay 0
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "one number with two payloads, held and replayed": """
        live 0          -> apply 0
        live 2          -> replay 1
        reply 1b        -> apply 1
        reply 2b        -> forget restarted, replay 0 | rebuilding
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "an overtaken number during a replay is compared": """
        live 0          -> apply 0
        live 3          -> replay 1
        live 2          -> replay 0             | rebuilding
        reply 0         ->
        reply 1 2 3     -> apply 1, apply 2, apply 3
        end             ->                      | exact
    """,
    "a lower number during a replay can be another process": """
        live 0          -> apply 0
        live 3          -> replay 1
        live 2b         -> replay 0
        reply 0b        -> forget restarted, replay 0
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a duplicate": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 1 2 0      ->                      | exact
        live 3          -> apply 3
    """,
    "a duplicate of what is held": """
        live 0          -> apply 0
        live 2 2        -> replay 1
        reply 1         -> apply 1
        end             -> apply 2              | exact
    """,
    "live messages behind a replay are no restart": """
        connected       -> replay 0
        reply 0 1 2 3   -> apply 0, apply 1, apply 2, apply 3
        live 1          ->
        end             ->                      | exact
        live 2 3        ->
        live 4          -> apply 4
    """,
}

WITHOUT_REPLAY = {
    "a restart at 0": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 0b         -> forget restarted, apply 0 | exact
    """,
    "a restart that is noticed late": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 2b         -> forget restarted, apply 2 | joined
    """,
    "a duplicate": """
        live 0 1        -> apply 0, apply 1
        live 1 0        ->                      | exact
    """,
}

AT_THE_BOUNDS = {
    "a duplicate older than what is remembered counts as a restart": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        live 0          -> forget restarted, apply 0 | exact
    """,
    "an overlap with a replay older than what is remembered is dropped": """
        connected       -> replay 0
        reply 0 1 2 3   -> apply 0, apply 1, apply 2, apply 3
        live 0          ->
        end             ->                      | exact
        live 1 2 3      ->
        live 4          -> apply 4              | exact
    """,
    "two publishers under one name do not ask for ever": """
        live 1          -> replay 0
        live 1b         -> forget restarted, replay 0
        live 1          -> forget restarted, apply 1 | joined
        live 1b         -> forget restarted, apply 1 | joined
        live 1          -> forget restarted, apply 1 | joined
        tick 10         -> replay 0             | rebuilding
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


@pytest.mark.parametrize("script", WITHOUT_REPLAY.values(), ids=WITHOUT_REPLAY)
def test_without_replay(script: str) -> None:
    play(script, has_replay=False)


@pytest.mark.parametrize("script", AT_THE_BOUNDS.values(), ids=AT_THE_BOUNDS)
def test_at_the_bounds(script: str) -> None:
    play(script, limits=SMALL)


def test_restarts_and_duplicates_are_counted() -> None:
    counters = play(SCRIPTS["one number with two payloads, held and replayed"]).counters
    assert counters.resets == {ResetCause.OTHER_CONTENT: 1}
    assert (counters.gaps, counters.replays, counters.replays_completed) == (1, 2, 1)
    assert (counters.batches, counters.replayed_batches, counters.discarded) == (5, 4, 1)
    counters = play(SCRIPTS["a duplicate"]).counters
    assert (counters.duplicates, counters.num_resets) == (3, 0)
