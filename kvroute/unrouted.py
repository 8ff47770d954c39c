"""Why a prompt was placed by load alone, and what to change, for people.

Words of a newer router that are not known here are shown as they are.
"""

from collections.abc import Mapping

from prompt import NoTokensReason
from router.counters import UnroutedReason

_WHY: Mapping[str, str] = {
    NoTokensReason.NO_TOKENIZER: "no tokenizer of its model is known to the router "
    "(kvroute serve --tokenizer MODEL=DIR)",
    NoTokensReason.NOT_TOKENIZED: "no tokenizer of its model is known to the router, and the engine "
    "that was asked did not tokenize it in time",
    NoTokensReason.NO_TEMPLATE: "there is no chat template in the directory of the model's tokenizer",
    NoTokensReason.OWN_TEMPLATE: "the request brings a chat template of its own, which is not run",
    NoTokensReason.TEMPLATE_FAILED: "the model's chat template refused the chat, or broke on it",
    NoTokensReason.UNSUPPORTED_API: "it goes on from what an engine keeps, or "
    "engines render it in ways of their own",
    NoTokensReason.UNSUPPORTED_CONTENT: "it holds what the engine renders in a way of its own: images "
    "in front, audio, embeddings, or it asks for truncation",
    NoTokensReason.BATCHED_PROMPT: "the request holds several prompts",
    NoTokensReason.NOT_A_PROMPT: "it holds no prompt that an engine would accept",
    NoTokensReason.TOO_LONG: "it is beyond the limits of rendering",
    UnroutedReason.ENCODED_BODY: "the body is compressed",
}


def why_unrouted(reason: str) -> str:
    """The reason in words, with its name."""
    words = _WHY.get(reason)
    return reason if words is None else f"{words} ({reason})"
