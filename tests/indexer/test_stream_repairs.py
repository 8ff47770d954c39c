"""Claims in doubt: a full replay takes their place later, or a clear ends the doubt."""

import pytest

from tests.indexer.stream_script import play

SCRIPTS = {
    "a replay that hangs is a loss, and a full replay repairs it later": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0             | rebuilding
        live 4          ->
        reply 0 1 2 3   -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             -> apply 4              | exact
        tick 10.5       ->
    """,
    "a repair that finds a truncated buffer is the last one": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0
        reply 2 3       ->
        end             ->                      | degraded
        tick 11         -> replay 3             | degraded
        reply 3         ->
        end             ->                      | degraded
        tick 30         ->
    """,
    "so is one whose truncated buffer takes more than one conversation": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0             | rebuilding
        reply 2 3       ->
        cut             -> replay 4             | rebuilding
        end             ->                      | degraded
        tick 11         -> replay 3             | degraded
        reply 3         ->
        end             ->                      | degraded
        tick 30         ->
        tick 40         ->
    """,
    "repairs that fail come ever more seldom": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3
        tick 10         -> replay 0
        fail            ->                      | degraded
        tick 29         -> replay 3             | degraded
        fail            ->                      | degraded
        tick 30         -> replay 0             | rebuilding
        fail            ->                      | degraded
        live 4          -> apply 4              | degraded
        tick 30.5       ->
    """,
    "a replay that completes makes the next repair prompt": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0
        fail            ->
        tick 30         -> replay 0
        reply 0 1 2 3   -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             ->                      | exact
        live 5          -> replay 4
        fail            -> lost 4-4, apply 5    | degraded
        tick 40         -> replay 0             | rebuilding
    """,
    "a replay that breaks off leaves its end in doubt": """
        connected       -> replay 0             | rebuilding
        reply 0 1       -> apply 0, apply 1
        fail            -> lost 2-              | degraded
        tick 10         -> replay 0
        reply 0 1 2     -> forget rebuilt, apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a hole that is lost in a replay that breaks is repaired, too": """
        live 0          -> apply 0
        live 4          -> replay 1             | rebuilding
        reply 2         -> lost 1-1, apply 2
        disconnected    ->
        connected       -> replay 2
        reply 2 3       -> apply 3
        end             -> apply 4              | degraded
        tick 0.5        ->
        tick 10.5       -> replay 0             | rebuilding
        reply 0 1 2 3 4 -> forget rebuilt, apply 0, apply 1, apply 2, apply 3, apply 4
        end             ->                      | exact
        tick 11         ->
    """,
    "a start that is missed in a replay that breaks is asked for again": """
        connected       -> replay 0             | rebuilding
        reply 1         -> apply 1
        disconnected    ->
        connected       -> replay 1
        reply 1         ->
        end             ->                      | joined
        tick 0.5        ->
        tick 10.5       -> replay 0             | rebuilding
        reply 0 1       -> forget rebuilt, apply 0, apply 1
        end             ->                      | exact
    """,
    "a repair that breaks before its end is tried again": """
        live 0          -> apply 0
        live 3          -> replay 1
        fail            -> lost 1-2, apply 3    | degraded
        tick 10         -> replay 0
        reply 2         ->
        disconnected    ->
        connected       -> replay 3
        reply 3         ->
        end             ->                      | degraded
        tick 10.5       ->
        tick 30.5       -> replay 0             | rebuilding
        reply 2 3       ->
        end             ->                      | degraded
        tick 32         -> replay 3             | degraded
        reply 3         ->
        end             ->
        tick 50         ->
    """,
    "a buffer that no longer reaches back is not asked again": """
        live 0          -> apply 0
        live 3          -> replay 1
        reply 2         -> lost 1-1, apply 2
        end             -> apply 3              | degraded
        tick 0.5        ->
        tick 29         -> replay 3             | degraded
    """,
    "a replay that leaves out its end is tried again, ever more seldom": """
        live 0          -> apply 0
        live 3          -> replay 1
        end             -> lost 1-2, apply 3    | degraded
        tick 0.5        ->
        tick 10.5       -> replay 0
        reply 0 1       -> forget rebuilt, apply 0, apply 1
        live 4          ->
        end             -> replay 2
        end             -> lost 2-3, apply 4    | degraded
        tick 10.9       ->
        tick 30.8       -> replay 4             | degraded
        fail            ->
        tick 31         -> replay 0             | rebuilding
    """,
    "what cannot be read is not asked for again": """
        live 0          -> apply 0
        live 1~         -> apply 1, lost 1-1    | degraded
        tick 0.5        ->
        tick 29         -> replay 1             | degraded
    """,
    "a purged rank is rebuilt": """
        live 0 1        -> apply 0, apply 1     | exact
        tick 0.5 purged ->
        tick 10.5 purged -> replay 0             | rebuilding
        live 2          ->
        reply 0 1       -> forget rebuilt, apply 0, apply 1
        end             -> apply 2              | exact
        tick 11         ->
    """,
    "a purged rank is rebuilt from where the buffer begins": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        tick 0.5 purged ->
        tick 10.5 purged -> replay 0
        reply 1 2       -> forget rebuilt, apply 1, apply 2
        end             ->                      | joined
        tick 11         ->
        tick 25         -> replay 2
        reply 2         ->
        end             ->
        tick 40 purged  ->
        tick 50 purged  -> replay 0
    """,
    "a rebuild of a purged rank that fails is tried again, ever more seldom": """
        live 0          -> apply 0
        tick 0.5 purged ->
        tick 10.5 purged -> replay 0             | rebuilding
        fail            ->                      | exact
        tick 30 purged  -> replay 0             | exact
        fail            ->                      | exact
        tick 31 purged  -> replay 0             | rebuilding
    """,
    "a purge that is over before it is due needs no rebuild": """
        live 0          -> apply 0
        tick 0.5 purged ->
        tick 0.9        ->
        tick 12         -> replay 0             | exact
        reply 0         ->
        end             ->
        tick 13         ->
    """,
    "a full clear ends every doubt": """
        live 0          -> apply 0
        live 3          -> replay 1
        end             -> lost 1-2, apply 3    | degraded
        live 4!         -> apply 4              | exact
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


def test_clears_are_counted() -> None:
    counters = play(SCRIPTS["a full clear ends every doubt"]).counters
    assert (counters.clears, counters.events) == (1, 4)
