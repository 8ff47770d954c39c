"""What the operator says of how prompts become tokens."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class PromptConfig(BaseModel):
    """How prompts become tokens.

    Attributes:
        memo_bytes: room for long chats and their tokens, so that one that grows is tokenized from its last turns on.
            Chats that were not seen the longest go. 0 keeps none.
        hub_cache: where models are looked for that engines name by hub id: by default where Hugging Face's
            libraries keep them (`HF_HUB_CACHE`, `HF_HOME`). Nothing is downloaded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    memo_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 128 << 20
    hub_cache: Path | None = None
