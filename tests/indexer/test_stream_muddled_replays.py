"""Replays with replies that cannot be read: whatever is made of them, the rank does not become exact."""

import pytest

from indexer import LossCause, RecordLoss, Trust
from tests.indexer.stream_script import play

SCRIPTS = {
    "nothing else": """
        connected       -> replay 0
        muddled         ->                      | none
    """,
    "beside some that can be read": """
        connected       -> replay 0
        reply 0 1       -> apply 0, apply 1
        muddled         -> lost 2-              | degraded
    """,
    "in a gap": """
        live 0          -> apply 0
        live 3          -> replay 1
        reply 1         -> apply 1
        muddled         -> lost 2-2, apply 3    | degraded
    """,
    "after a reconnect": """
        live 0          -> apply 0
        disconnected    ->
        connected       -> replay 0
        muddled         -> lost 1-              | degraded
    """,
    "after a reconnect, behind the number that was asked for": """
        live 0          -> apply 0
        disconnected    ->
        connected       -> replay 0
        reply 0         ->
        muddled         -> lost 1-              | degraded
    """,
    "behind a silence, where more was to come": """
        live 0          -> apply 0
        tick 1          -> replay 0
        reply 0         ->
        muddled         -> lost 1-              | degraded
    """,
    "in a repair": """
        live 0          -> apply 0
        live 2          -> replay 1
        fail            -> lost 1-1, apply 2    | degraded
        tick 10         -> replay 0
        muddled         ->                      | degraded
    """,
}


@pytest.mark.parametrize("ending", ["muddled", "garbled"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_it_is_not_exact_afterwards(script: str, ending: str) -> None:
    stream = play(script.replace("muddled", ending))
    assert stream.trust is not Trust.EXACT
    assert stream.counters.replays_failed >= 1


def test_a_look_behind_a_silence_that_shows_nothing_at_all_costs_nothing() -> None:
    """What was exact by the live socket alone stays so: nothing says that there was more."""
    play(
        """
        live 0          -> apply 0
        tick 1          -> replay 0
        muddled         ->                      | exact
        """
    )


def test_what_another_replay_would_bring_again_is_not_asked_for_again() -> None:
    """A payload is the same however often it is sent; frames that are none may be an accident."""
    start = """
        connected       -> replay 0
        reply 0         -> apply 0
        muddled         -> lost 1-              | degraded
        """
    play(start + "tick 1 -> replay 0\nreply 0 ->\nmuddled ->\ntick 15 ->")
    play(start.replace("muddled", "garbled") + "tick 10 -> replay 0")


CAUSES = {
    "no replay socket": (False, "live 0 -> apply 0\nlive 2 -> lost 1-1, apply 2", "no_replay"),
    "nobody answers": (
        True,
        "live 0 -> apply 0\nlive 2 -> replay 1\nfail -> lost 1-1, apply 2",
        "unanswered",
    ),
    "the buffer is short": (
        True,
        "live 0 -> apply 0\nlive 9 -> replay 1\nreply 8 -> lost 1-7, apply 8",
        "truncated",
    ),
    "the buffer is empty": (
        True,
        "live 0 -> apply 0\nlive 2 -> replay 1\nend -> lost 1-1, apply 2",
        "truncated",
    ),
    "a payload cannot be decoded": (
        True,
        "live 0 -> apply 0\nlive 1? -> replay 1\nreply 1? -> lost 1-1",
        "unreadable",
    ),
    "an event cannot be decoded": (True, "live 0~ -> apply 0, lost 0-0", "unreadable"),
    "replies cannot be read": (True, SCRIPTS["in a gap"], "unreadable"),
}


@pytest.mark.parametrize(("has_replay", "script", "cause"), CAUSES.values(), ids=CAUSES)
def test_a_loss_says_why(has_replay: bool, script: str, cause: str) -> None:
    stream = play(script, has_replay=has_replay)
    assert isinstance(stream.position.last_loss, RecordLoss)
    assert stream.position.last_loss.cause is LossCause(cause)
    assert stream.counters.losses_by_cause == {LossCause(cause): stream.counters.losses}
