"""A token that goes into a header: what does not go there is refused where it is given, not where it is sent."""

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr

_VISIBLE = re.compile(r"[!-~]+")


def token_fault(text: str) -> str | None:
    """Why the text cannot be a token, without a word of it; None where it can."""
    if not text:
        return "must not be empty"
    if text != text.strip():
        return "begins or ends with a blank or a line break"
    if not _VISIBLE.fullmatch(text):
        return "has characters beyond the visible ones of ASCII"
    return None


def _token(value: SecretStr) -> SecretStr:
    if (fault := token_fault(value.get_secret_value())) is not None:
        raise ValueError(fault)
    return value


BearerToken = Annotated[SecretStr, AfterValidator(_token)]
