"""What comes of a request's prompt, as a value."""

from typing import NamedTuple

from protocol import TokenBytes


class PromptTokens(NamedTuple):
    """A prompt as the engine will see it, and what it cost to find out.

    Attributes:
        is_cut: these are the tokens before the first image (or other item that is not text); how many
            follow is not known here.
    """

    tokens: TokenBytes
    render_us: int
    tokenize_us: int
    is_cut: bool = False
