"""A connection that broke: is it the same process, and what was missed?"""

import pytest

from tests.indexer.stream_script import SMALL, play

SCRIPTS = {
    "a reconnect to the same process": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->                      | exact
        connected       -> replay 1             | rebuilding
        live 4          ->
        reply 1         ->
        reply 2 3 4     -> apply 2, apply 3, apply 4
        end             ->                      | exact
    """,
    "a reconnect to another process with the same number": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        live 2b         ->
        reply 1b        -> forget restarted, replay 0 | rebuilding
        reply 0b 1b 2b  -> apply 0, apply 1, apply 2
        end             ->                      | exact
    """,
    "a reconnect to another process before anything was applied": """
        connected       -> replay 0             | rebuilding
        live 2 3        ->
        disconnected    ->
        connected       -> replay 0             | rebuilding
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
        live 2b         -> apply 2              | exact
    """,
    "a reconnect to the same process before anything was applied": """
        live 2          -> replay 0             | rebuilding
        disconnected    ->
        connected       -> replay 0             | rebuilding
        live 3          ->
        reply 0 1 2     -> apply 0, apply 1, apply 2
        end             -> apply 3              | exact
    """,
    "a reconnect to another process with fewer numbers": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        disconnected    ->
        connected       -> replay 2
        end             -> forget restarted, replay 0
        reply 0b        -> apply 0
        end             ->                      | exact
    """,
    "a reconnect where the last number left the buffer": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        disconnected    ->
        connected       -> replay 2
        reply 9         -> forget restarted, replay 0
        reply 9         -> apply 9
        end             ->                      | joined
    """,
    "a reconnect that nobody answers": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        disconnected    ->
        connected       -> replay 2
        live 3          ->
        fail            -> lost 3-, apply 3, lost 4- | degraded
        tick 10         -> replay 0
        reply 0 1 2 3   -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             ->                      | exact
    """,
    "what the process before said last, and nobody tells that it is gone": """
        live 0 1        -> apply 0, apply 1
        live 3          -> replay 2
        disconnected    ->
        connected       -> replay 1
        fail            -> lost 2-, lost 2-2, apply 3, lost 4- | degraded
        live 4b         -> apply 4              | degraded
    """,
    "a clear in what may be of two processes": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        live 2!         ->
        live 3b         ->
        fail            -> lost 2-, apply 2, apply 3, lost 4- | degraded
        tick 10         -> replay 0
        reply 0b 1b 2b 3b -> forget rebuilt, apply 0, apply 1, apply 2, apply 3
        end             ->                      | exact
    """,
    "what is held below a short buffer may be of the process before": """
        live 0          -> apply 0
        disconnected    ->
        connected       -> replay 0
        live 3          ->
        reply 4b        -> forget restarted, replay 0
        live 3          ->
        reply 4b        -> apply 4
        end             ->                      | joined
    """,
    "the first messages of two new processes, mixed": """
        live 0b 1b      -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        live 0          -> forget restarted, replay 0 | rebuilding
        live 0b         -> forget restarted, replay 0
        live 1          ->
        reply 0         -> forget restarted, replay 0
        reply 0 1       -> apply 0, apply 1
        end             ->                      | exact
    """,
    "the start in what may be of two processes": """
        connected       -> replay 0
        disconnected    ->
        connected       -> replay 0
        live 0 1b       ->
        fail            -> apply 0, apply 1, lost 2- | degraded
        tick 10         -> replay 0
        reply 0b 1b     -> forget rebuilt, apply 0, apply 1
        end             ->                      | exact
    """,
    "an answer that is cut before it tells whose it is": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        reply 0         ->
        cut             -> replay 1             | rebuilding
        reply 1b        -> forget restarted, replay 0
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "an answer that tells nothing of this rank, for the buffer is others'": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        short           -> lost 2-              | degraded
        tick 10         -> replay 0
        short           ->                      | degraded
        live 2          -> apply 2              | degraded
    """,
    "a connection that breaks during a replay": """
        live 0 1        -> apply 0, apply 1
        live 4          -> replay 2
        disconnected    ->                      | rebuilding
        reply 2b        ->
        connected       -> replay 1
        reply 1         ->
        reply 2 3 4     -> apply 2, apply 3, apply 4
        end             ->                      | exact
    """,
    "a connection that breaks twice": """
        connected       -> replay 0
        disconnected    ->                      | rebuilding
        connected       -> replay 0             | rebuilding
        reply 0         -> apply 0
        disconnected    ->
        connected       -> replay 0
        reply 0         ->
        reply 1         -> apply 1
        end             ->                      | exact
    """,
    "a restart and a broken connection cross": """
        live 0 1 2      -> apply 0, apply 1, apply 2
        live 5          -> replay 3
        disconnected    ->
        live 1b         -> forget restarted, replay 0
        connected       -> replay 0             | rebuilding
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "the numbers of the process before are no measure": """
        live 0 1 2 3    -> apply 0, apply 1, apply 2, apply 3
        disconnected    ->
        connected       -> replay 3
        end             -> forget restarted, replay 0
        live 1b         ->
        reply 0b        -> apply 0
        end             -> apply 1              | exact
    """,
}

WITHOUT_REPLAY = {
    "a reconnect that goes on": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       ->                      | exact
        live 2          -> apply 2              | exact
    """,
    "a reconnect that has missed some": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       ->
        live 4          -> lost 2-3, apply 4    | degraded
    """,
    "a reconnect to another process": """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       ->
        live 1b         -> forget restarted, apply 1 | joined
    """,
}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_with_replay(script: str) -> None:
    play(script)


@pytest.mark.parametrize("script", WITHOUT_REPLAY.values(), ids=WITHOUT_REPLAY)
def test_without_replay(script: str) -> None:
    play(script, has_replay=False)


def test_a_clear_in_more_than_can_be_held_behind_a_reconnect() -> None:
    script = """
        live 0 1        -> apply 0, apply 1
        disconnected    ->
        connected       -> replay 1
        live 2! 3b 4b   ->
        live 5b         -> lost 2-, apply 2, apply 3, apply 4, apply 5, lost 6- | degraded
        live 6b!        -> apply 6              | exact
    """
    play(script, limits=SMALL)
