"""What the operator says of how prompts become tokens."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from router.config_section import Section


class PromptConfig(Section):
    """How prompts become tokens.

    Attributes:
        memo_bytes: room for long chats and their tokens, so that one that grows is tokenized from its last turns on.
            Chats that were not seen the longest go. 0 keeps none.
        hub_cache: where models are looked for that engines name by hub id: by default where Hugging Face's
            libraries keep them (`HF_HUB_CACHE`, `HF_HOME`). Nothing is downloaded.
        asks_engines: have engines tokenize (`/tokenize`) for models whose tokenizer is not found here, and
            compare their tokens with the router's own where it is.
        ask_timeout_s: an engine that has not tokenized by then is not waited for: the request goes by load.
        approximates: place prompts whose tokens cannot be made by what the router remembers of alike texts.
        sends_token_ids: put the tokens into chats for vLLM (`kv_transfer_params.prompt_token_ids`), so that it need
            not make them again. Only where every engine of the model made the same tokens when it was asked.
    """

    memo_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 128 << 20
    hub_cache: Path | None = None
    asks_engines: bool = True
    ask_timeout_s: Annotated[float, Field(gt=0, le=60)] = 0.5
    approximates: bool = True
    sends_token_ids: bool = False
