"""A silent live socket: the replay socket is asked whether there was more."""

import pytest

from tests.indexer.stream_script import play

SCRIPTS = {
    "behind a silence there is nothing": """
        live 0 1        -> apply 0, apply 1
        tick 0.9        ->
        tick 1          -> replay 1             | exact
        reply 1         ->
        end             ->                      | exact
        tick 30         ->
        tick 31         -> replay 1             | exact
    """,
    "behind a silence there is more": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        reply 1         ->
        reply 2         -> apply 2              | rebuilding
        end             ->                      | exact
    """,
    "behind a silence there is another process": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        reply 1b        -> forget restarted, replay 0
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "behind a silence there is a new process with nothing": """
        connected       -> replay 0
        reply 0         -> apply 0
        end             ->
        tick 1          -> replay 0             | exact
        end             -> forget restarted, replay 0
        end             ->                      | exact
    """,
    "a publisher without a buffer proves nothing by its silence": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        end             ->                      | exact
    """,
    "a live message ends the look behind a silence": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        live 2          -> apply 2              | exact
        reply 1         ->
    """,
    "a look behind a silence that nobody answers": """
        live 0 1        -> apply 0, apply 1
        tick 1          -> replay 1
        fail            ->                      | exact
        live 2          -> apply 2
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)
