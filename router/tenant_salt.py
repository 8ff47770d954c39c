"""A tenant's own cache: each of its requests gets a ``cache_salt`` that nobody else can name.

    HMAC-SHA256(the tenant's salt, the request's own salt or none) ─▶ base64 ─▶ ``cache_salt`` of the body

Requests of one tenant with equal salts of their own share a cache; those of two tenants never do, whatever
they send. What the engines, their events and their logs show tells nothing of the tenant's salt.

The body changes by that field alone. All other bytes stay as they came, be they what only some parsers take.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from json import JSONDecoder
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in its stub

FIELD = "cache_salt"
_MARK = b"\xef\xbb\xbf"
_DECODER = JSONDecoder()


class UnsaltableError(Exception):
    """The body is of a form into which no field can be put. The message says which."""


class TenantSalt:
    """Makes and sets the salts of one tenant.

    Args:
        secret: the tenant's; whoever has it can name the tenant's salts to an engine.
    """

    __slots__ = ("_none", "_secret")

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self._none = self._digest(b"\x00")

    def of(self, own: object) -> str:
        """The salt in place of a request's own; what is no text, or empty, counts as none."""
        if not isinstance(own, str) or not own:
            return self._none
        return self._digest(b"\x01" + own.encode("utf-8", "surrogatepass"))

    def applied(self, body: bytes, fields: Mapping[str, object], *, adds: bool = True) -> bytes:
        """The body with the field set.

        O(body), and without parsing where the request has no salt of its own.

        Args:
            body: a JSON object.
            fields: the same, parsed.
            adds: where there is none, too.

        Raises:
            UnsaltableError: it is in no UTF-8, or nested too deeply.
        """
        if FIELD in fields:
            return self._replaced(body)
        return self._with_field(body, has_fields=bool(fields)) if adds else body

    def _with_field(self, body: bytes, *, has_fields: bool) -> bytes:
        at = _opening(body) + 1
        field = f'"{FIELD}":"{self._none}"{"," if has_fields else ""}'
        return body[:at] + field.encode() + body[at:]

    def _replaced(self, body: bytes) -> bytes:
        """Every value of the field in the outermost object, were it there twice."""
        start = _opening(body)
        text = body[start:].decode("utf-8", "surrogatepass")
        parts, done, at = [], 0, 1
        try:
            while text[(at := _after_blanks(text, at))] != "}":
                name, at = scanstring(text, at + 1)
                at = _after_blanks(text, _after_blanks(text, at) + 1)
                value, end = _DECODER.raw_decode(text, at)
                if name == FIELD:
                    parts += [text[done:at], self._written(value)]
                    done = end
                at = _after_blanks(text, end)
                at += text[at] == ","
        except RecursionError as error:
            raise UnsaltableError("it is nested too deeply") from error
        return body[:start] + "".join([*parts, text[done:]]).encode("utf-8", "surrogatepass")

    def _written(self, value: object) -> str:
        """One salt, or a list of them beside a batch; none needs escaping."""
        if isinstance(value, list):
            return "[" + ",".join(f'"{self.of(one)}"' for one in value) + "]"
        return f'"{self.of(value)}"'

    def _digest(self, message: bytes) -> str:
        digest = hmac.digest(self._secret, message, "sha256")
        return urlsafe_b64encode(digest).decode().rstrip("=")


def _opening(body: bytes) -> int:
    """Where the object begins.

    Raises:
        UnsaltableError: it is in UTF-16 or UTF-32, as some engines take it.
    """
    start = len(_MARK) if body.startswith(_MARK) else 0
    while body[start : start + 1] in (b" ", b"\t", b"\r", b"\n"):
        start += 1
    if body[start : start + 1] != b"{" or b"\x00" in body[: start + 4]:
        raise UnsaltableError("it is not in UTF-8")
    return start


def _after_blanks(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
