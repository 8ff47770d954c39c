"""From request body to token ids, as the engine makes them: view, render, tokenize."""

from prompt.approximate import approximate_tokens
from prompt.bundled import BUNDLED_MODEL_NAME, bundled_model_dir
from prompt.errors import (
    MalformedRequestError,
    NoTokensError,
    NoTokensReason,
    PromptModelError,
)
from prompt.given_ids import GivenIds
from prompt.hub_cache import default_hub_cache, hub_snapshot
from prompt.model import PromptModel
from prompt.models import PromptModels
from prompt.parity_probes import FURTHER_PROBES, PARITY_PROBES
from prompt.prefix_table import PrefixTable, TableLimits, chunk_names
from prompt.prompt_tokens import PromptTokens
from prompt.single_prompt import given_tokens
from prompt.template import ChatTemplate, RenderLimits
from prompt.token_memo import MemoCounts, TokenMemo
from prompt.tokenize_body import AskedKind, is_chat, tokenize_body
from prompt.tokenizer import Tokenizer, TokenizerChoice, load_tokenizer, unpack_tokens
from prompt.view import Api, RequestView, api_of_path, computes_whole_prompt, view_request

__all__ = [
    "BUNDLED_MODEL_NAME",
    "FURTHER_PROBES",
    "PARITY_PROBES",
    "Api",
    "AskedKind",
    "ChatTemplate",
    "GivenIds",
    "MalformedRequestError",
    "MemoCounts",
    "NoTokensError",
    "NoTokensReason",
    "PrefixTable",
    "PromptModel",
    "PromptModelError",
    "PromptModels",
    "PromptTokens",
    "RenderLimits",
    "RequestView",
    "TableLimits",
    "TokenMemo",
    "Tokenizer",
    "TokenizerChoice",
    "api_of_path",
    "approximate_tokens",
    "bundled_model_dir",
    "chunk_names",
    "computes_whole_prompt",
    "default_hub_cache",
    "given_tokens",
    "hub_snapshot",
    "is_chat",
    "load_tokenizer",
    "tokenize_body",
    "unpack_tokens",
    "view_request",
]
