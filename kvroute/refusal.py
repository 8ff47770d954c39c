"""What a router says where it refuses a call, in a line: its own words, out of the JSON around them."""

import orjson

from router.answer_fields import fields_of
from router.plain_text import plain

_MAX_CHARS = 300


def refusal_words(body: bytes) -> str:
    """The message of an error: in OpenAI's form, the control port's, or the text as it is."""
    try:
        fields = fields_of(orjson.loads(body))
    except orjson.JSONDecodeError:
        return plain(body.decode("utf-8", "replace"), _MAX_CHARS)
    told = fields_of(fields.get("error")).get("message") or fields.get("detail")
    if isinstance(told, list):
        told = "; ".join(map(_fault, told))
    is_said = isinstance(told, str) and told
    return plain(str(told) if is_said else body.decode("utf-8", "replace"), _MAX_CHARS)


def _fault(one: object) -> str:
    """One of several of a body or its parameters: the path of the field, and what is wrong there."""
    fields = fields_of(one)
    where = fields.get("loc")
    path = ".".join(map(str, where)) if isinstance(where, list) else ""
    return ": ".join(filter(None, (path, str(fields.get("msg", "")))))
