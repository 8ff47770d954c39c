"""Streams that begin behind claims out of a dump: is it the same publisher, and was nothing missed between?"""

import pytest

from tests.indexer.stream_script import play

WITH_REPLAY = {
    "the publisher has gone on": """
        resume 7 exact  ->                      | joined
        connected       -> replay 7             | rebuilding
        reply 7 8 9     -> apply 8, apply 9
        end             ->                      | exact
        live 10         -> apply 10             | exact
    """,
    "it has published nothing since": """
        resume 7 exact  ->
        connected       -> replay 7
        reply 7         ->
        end             ->                      | exact
    """,
    "what came live in the meantime": """
        resume 7 exact  ->
        connected       -> replay 7
        live 6 7 8 9    ->
        reply 7 8       -> apply 8
        end             -> apply 9              | exact
    """,
    "it has restarted": """
        resume 7 exact  ->
        connected       -> replay 7
        reply 7b        -> forget restarted, replay 0
        reply 0b 1b     -> apply 0, apply 1
        end             ->                      | exact
    """,
    "it has restarted and not come as far": """
        resume 7 exact  ->
        connected       -> replay 7
        end             -> forget restarted, replay 0
        reply 0b        -> apply 0
        end             ->                      | exact
    """,
    "its buffer no longer reaches back": """
        resume 7 exact  ->
        connected       -> replay 7
        reply 9         -> forget restarted, replay 0
        reply 9 10      -> apply 9, apply 10
        end             ->                      | joined
    """,
    "the teller had joined late itself": """
        resume 7 joined ->
        connected       -> replay 7
        reply 7 8       -> apply 8
        end             ->                      | joined
    """,
    "the replay hangs": """
        resume 7 exact  ->
        connected       -> replay 7
        fail            -> lost 8-              | degraded
    """,
}
WITHOUT_REPLAY = {
    "the next number is the next number": """
        resume 7 exact  ->                      | joined
        live 8          -> apply 8              | exact
    """,
    "an overlap that is known": """
        resume 7 exact  ->
        live 6 7        ->                      | exact
        live 8          -> apply 8              | exact
    """,
    "a number is missing": """
        resume 7 exact  ->
        live 9          -> lost 8-8, apply 9    | degraded
    """,
    "an overlap with another process": """
        resume 7 exact  ->
        live 6b         -> forget restarted, apply 6  | joined
        live 7b         -> apply 7              | joined
    """,
    "a number so low that nobody knows it": """
        resume 7 exact  ->
        live 1          -> forget restarted, apply 1  | joined
        live 2          -> apply 2              | joined
    """,
    "it has begun anew": """
        resume 7 exact  ->
        live 0b         -> forget restarted, apply 0  | exact
        live 1b         -> apply 1              | exact
    """,
    "the next number cannot be read": """
        resume 7 exact  ->
        live 8?         -> lost 8-8             | degraded
    """,
}


@pytest.mark.parametrize("name", WITH_REPLAY)
def test_with_a_replay_socket(name: str) -> None:
    play(WITH_REPLAY[name])


@pytest.mark.parametrize("name", WITHOUT_REPLAY)
def test_without_a_replay_socket(name: str) -> None:
    play(WITHOUT_REPLAY[name], has_replay=False)
