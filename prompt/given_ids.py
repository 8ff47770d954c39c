"""A model whose tokenizer is not known: prompts that are token ids already need none.

Ids of a completion or generate body are what the engine computes. Those of a chat
(``kv_transfer_params.prompt_token_ids``) are read by vLLM and ignored by SGLang.
"""

from prompt.errors import NoTokensError, NoTokensReason
from prompt.prompt_tokens import PromptTokens
from prompt.single_prompt import given_tokens, packed_ids, refuse_further_content, transferred_ids
from prompt.view import Api, RequestView


class GivenIds:
    """Stands where a `PromptModel` would."""

    def __init__(self, *, reads_transferred: bool) -> None:
        """``reads_transferred``: every engine of the model takes the ids of a chat."""
        self._reads_transferred = reads_transferred

    def prompt_tokens(self, view: RequestView) -> PromptTokens:
        """The ids that the request brings itself; O(ids).

        Raises:
            NoTokensError: it brings none, or there is no one prompt, with a tokenizer or without.
        """
        tokens = given_tokens(view)
        if tokens is None and self._reads_transferred and view.api is Api.CHAT:
            refuse_further_content(view.body)
            ids = transferred_ids(view.body)
            tokens = None if ids is None else packed_ids(ids)
        if tokens is None:
            raise NoTokensError(NoTokensReason.NO_TOKENIZER, "there is something to encode")
        return PromptTokens(tokens, 0, 0)
