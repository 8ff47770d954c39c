"""Replay conversations: holes in them, cuts, bounds on how many there are in a row."""

import pytest

from tests.indexer.stream_script import SMALL, play

SCRIPTS = {
    "a hole in a replay is asked for again, and lost if the buffer begins after it": """
        live 0          -> apply 0
        live 9          -> replay 1
        reply 1         -> apply 1
        reply 4         -> replay 2             | rebuilding
        reply 4         -> lost 2-3, apply 4
        end             -> lost 5-8, apply 9    | degraded
    """,
    "a replay that is cut goes on from where it stands": """
        connected       -> replay 0
        reply 0 1       -> apply 0, apply 1
        cut             -> replay 2             | rebuilding
        reply 2         -> apply 2
        end             ->                      | exact
    """,
}

AT_THE_BOUNDS = {
    "replays in a row are bounded": """
        live 0          -> apply 0
        live 2          -> replay 1
        live 4          ->
        reply 1 2       -> apply 1, apply 2
        end             -> replay 3
        live 6          ->
        reply 3         -> apply 3
        end             -> apply 4, lost 5-5, apply 6 | degraded
        tick 10         -> replay 0             | rebuilding
    """,
    "a replay that leaves nothing open starts the count anew": """
        live 0          -> apply 0
        live 2          -> replay 1
        reply 1         -> apply 1
        end             -> apply 2
        live 4          -> replay 3
        reply 3         -> apply 3
        end             -> apply 4
        live 6          -> replay 5
        reply 5         -> apply 5
        end             -> apply 6              | exact
    """,
    "looks behind silences are no rounds": """
        live 0          -> apply 0
        tick 1          -> replay 0
        live 1          -> apply 1
        tick 2          -> replay 1
        live 2          -> apply 2
        tick 3          -> replay 2
        live 3          -> apply 3
        live 5          -> replay 4             | rebuilding
    """,
    "holes beyond the bound are lost": """
        live 0          -> apply 0
        live 9          -> replay 1
        reply 1 3       -> apply 1, replay 2
        reply 2 4       -> apply 2, lost 3-3, apply 4
        end             -> lost 5-8, apply 9    | degraded
        tick 10         -> replay 0
    """,
    "a cut beyond the bound has failed": """
        connected       -> replay 0
        reply 0         -> apply 0
        cut             -> replay 1
        reply 1         -> apply 1
        cut             -> lost 2-              | degraded
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


@pytest.mark.parametrize("script", AT_THE_BOUNDS.values(), ids=AT_THE_BOUNDS)
def test_at_the_bounds(script: str) -> None:
    play(script, limits=SMALL)
