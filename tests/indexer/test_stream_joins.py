"""The beginning: a publisher that has spoken before we listened, or has not yet."""

import pytest

from tests.indexer.stream_script import play

SCRIPTS = {
    "a late join is replayed from 0": """
        live 2          -> replay 0             | rebuilding
        live 3          ->
        reply 0 1 2     -> apply 0, apply 1, apply 2
        end             -> apply 3              | exact
    """,
    "a late join with a truncated buffer": """
        live 9          -> replay 0
        reply 7 8 9     -> apply 7, apply 8, apply 9
        end             ->                      | joined
    """,
    "a late join whose replay hangs is repaired": """
        live 2          -> replay 0
        fail            -> apply 2              | joined
        tick 10         -> replay 0
        reply 0 1 2     -> forget rebuilt, apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a publisher that has published nothing": """
        connected       -> replay 0             | rebuilding
        end             ->                      | exact
        live 0          -> apply 0              | exact
    """,
    "nobody answers and nobody speaks": """
        connected       -> replay 0             | rebuilding
        fail            ->                      | none
        tick 10         -> replay 0             | rebuilding
        end             ->                      | exact
    """,
    "a connection and a live message cross": """
        live 2          -> replay 0
        connected       ->
        reply 0 1 2     -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
}

WITHOUT_REPLAY = {
    "a late join": """
        live 7          -> apply 7              | joined
        live 8          -> apply 8              | joined
        live 10         -> lost 9-9, apply 10   | degraded
    """,
    "a late join at a clear": """
        live 7!         -> apply 7              | exact
    """,
    "a clear after a late join": """
        live 7          -> apply 7              | joined
        live 8!         -> apply 8              | exact
    """,
    "nothing heard": """
        connected       ->                      | none
        tick 1000       ->                      | none
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


@pytest.mark.parametrize("script", WITHOUT_REPLAY.values(), ids=WITHOUT_REPLAY)
def test_without_replay(script: str) -> None:
    play(script, has_replay=False)


def test_what_was_missed_before_is_counted_and_no_loss() -> None:
    counters = play(SCRIPTS["a late join with a truncated buffer"]).counters
    assert (counters.missed_before_join, counters.losses) == (7, 0)
