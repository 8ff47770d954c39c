"""What can go wrong between a body and its tokens, as closed sets and typed errors."""

from enum import StrEnum


class MalformedRequestError(Exception):
    """The body is not a JSON object. The message is fit for the client."""


class PromptModelError(Exception):
    """A model directory cannot be used. The message names the file and the fault."""


class NoTokensReason(StrEnum):
    """Why a request is routed on load alone."""

    NO_TOKENIZER = "no_tokenizer"  # nothing is known here of the model's tokenizer
    NOT_TOKENIZED = "not_tokenized"  # an engine was to be asked, and did not answer in time or well
    NO_TEMPLATE = "no_template"  # the model's directory holds no chat template
    OWN_TEMPLATE = "own_template"  # the request brings a template; it is not run here
    TEMPLATE_FAILED = "template_failed"  # the template refused the chat or broke on it
    UNSUPPORTED_API = (
        "unsupported_api"  # rests on what an engine keeps, or is rendered in a way of its own
    )
    UNSUPPORTED_CONTENT = "unsupported_content"  # images, audio, embeddings, truncation; what engines render differently
    BATCHED_PROMPT = "batched_prompt"  # several prompts in one request
    NOT_A_PROMPT = "not_a_prompt"  # no prompt that an engine would accept
    TOO_LONG = "too_long"  # beyond the limits of rendering


class NoTokensError(Exception):
    """The request has no tokens here, for ``reason``; it is still served, routed on load."""

    def __init__(self, reason: NoTokensReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
