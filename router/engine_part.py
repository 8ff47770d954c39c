"""Which part of the work an engine does, where it does not serve whole requests by itself.

In disaggregated serving one engine computes prompts and another one the answers, and a third may encode images; what
pairs them sends each request to both. Such an engine answers requests that come to it alone with errors, with one
token, or never.

    SGLang  ``/server_info``: ``disaggregation_mode`` prefill or decode, ``encoder_only``
    vLLM    ``/server_info`` (developer mode): ``kv_role`` of ``kv_transfer_config`` is kv_producer or kv_consumer;
            kv_both tells nothing, for whole engines have it too. Without that route nothing is told.

Source: SGLang 0.5.23 ``ServerArgs``; vLLM 0.32.0 ``KVTransferConfig`` (read).
"""

import re
from collections.abc import Mapping

from router.answer_fields import fields_of

_SGLANG_MODES = {"prefill": "prefill-only", "decode": "decode-only"}
_VLLM_ROLES = {"kv_producer": "prefill-only", "kv_consumer": "decode-only"}
_ROLE = re.compile(r"""["']?kv_role["']?\s*[=:]\s*["'](\w+)["']""")
_TRANSFER = "kv_transfer_config"


def part_of(server_info: object) -> str | None:
    """The part in words, such as ``prefill-only``; None for an engine that is whole, as far as it tells.

    Args:
        server_info: the engine's ``/server_info``, parsed.
    """
    info = fields_of(server_info)
    mode = info.get("disaggregation_mode")
    if isinstance(mode, str) and mode.lower() in _SGLANG_MODES:
        return _SGLANG_MODES[mode.lower()]
    if info.get("encoder_only") is True:
        return "encoder-only"
    role = _role(info)
    return None if role is None else _VLLM_ROLES.get(role)


def _role(info: Mapping[str, object]) -> str | None:
    """vLLM's role, as it stands in the configuration or in its text."""
    config = info.get("vllm_config")
    if isinstance(config, str):
        return _role_in(config)
    transfer = fields_of(config).get(_TRANSFER) or info.get(_TRANSFER)
    if isinstance(transfer, str):
        return _role_in(transfer)
    role = fields_of(transfer).get("kv_role")
    return role if isinstance(role, str) else None


def _role_in(text: str) -> str | None:
    found = _ROLE.search(text)
    return found[1] if found else None
