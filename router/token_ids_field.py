"""The tokens of a chat, put into its body for an engine that then need not make them again.

    {"model": …}  ─▶  {"kv_transfer_params":{"prompt_token_ids":[…]},"model": …}

The body changes by that field alone. Source: vLLM 0.32 (``kv_transfer_params``, recorded).
"""

from prompt import unpack_tokens
from protocol import TokenBytes

_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"


def with_token_ids(body: bytes, tokens: TokenBytes) -> bytes | None:
    """The body with the field in front; O(body + tokens).

    Args:
        body: a JSON object with a field or more, none of them ``kv_transfer_params``.

    Returns:
        None for a body in UTF-16 or UTF-32, which some parsers take.
    """
    begin = len(_MARK) if body.startswith(_MARK) else 0
    while body[begin : begin + 1] and body[begin] in _BLANKS:
        begin += 1
    if body[begin : begin + 1] != b"{" or b"\x00" in body[: begin + 4]:
        return None
    ids = ",".join(map(str, unpack_tokens(tokens)))
    field = b'{"kv_transfer_params":{"prompt_token_ids":[%b]},' % ids.encode()
    return body[:begin] + field + body[begin + 1 :]
