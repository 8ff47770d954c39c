"""The model that a form names: transcriptions and other uploads are multipart, and ``model`` is one of the fields.

    --b ⏎ Content-Disposition: form-data; name="model" ⏎ ⏎ whisper ⏎ --b ⏎ … file … ⏎ --b--

Contents are passed over by looking for the next delimiter; nothing is copied but the model. What an engine's parser
may read differently is not read at all: a right to a model must not rest on it. At most ``MAX_PARTS`` parts of
``MAX_PART_HEAD`` bytes of header each are looked at.

Source: RFC 7578, RFC 2046 §5.1.
"""

import re
from typing import NamedTuple

MAX_PARTS = 256
MAX_PART_HEAD = 8 * 1024
MAX_MODEL_BYTES = 1024
_WINDOW_BYTES = 1 << 20  # is searched at a time; other threads get to run in between
_TYPE = re.compile(rb"\s*multipart/form-data\s*(;.*)", re.IGNORECASE | re.DOTALL)
_BOUNDARY = re.compile(rb';\s*boundary\s*=\s*(?:"([^"\\]{1,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_OTHER_CHARSET = re.compile(rb'charset(?!\s*=\s*"?utf-8"?\s*(?:;|$))', re.IGNORECASE)
_DISPOSITION = re.compile(
    rb'\s*form-data((?:\s*;\s*[\w*-]+=(?:"[^"\\]*"|[^\s;"\\]+))*)\s*;?\s*', re.IGNORECASE
)
_PARAMETER = re.compile(rb';\s*([\w*-]+)=(?:"([^"\\]*)"|([^\s;"\\]+))')


class FormModel(NamedTuple):
    """What a form says; None where it names no model."""

    model: str | None


class _OddFormError(Exception):
    """It may be read in more than one way."""


class _Part(NamedTuple):
    name: bytes
    is_plain: bool
    start: int
    end: int


def form_model(content_type: bytes, body: bytes) -> FormModel | None:
    """The model of a form; None for what is none, or may be read in more than one way. O(body)."""
    boundary = _boundary(content_type)
    if boundary is None:
        return None
    try:
        return FormModel(_model(b"--" + boundary, body))
    except _OddFormError:
        return None


def _boundary(content_type: bytes) -> bytes | None:
    found = _TYPE.fullmatch(content_type)
    if found is None or _OTHER_CHARSET.search(found[1]):  # which some parsers heed
        return None
    boundaries: list[tuple[bytes, bytes]] = _BOUNDARY.findall(found[1])
    return (boundaries[0][0] or boundaries[0][1]) if len(boundaries) == 1 else None


def _model(delimiter: bytes, body: bytes) -> str | None:
    """Of every part of this name.

    Raises:
        _OddFormError: there are several that differ, or one that is no plain text.
    """
    model: str | None = None
    at = 0
    for _ in range(MAX_PARTS):
        if not body.startswith(delimiter, at):
            raise _OddFormError
        at += len(delimiter)
        if body.startswith(b"--", at):
            return model
        part = _part(delimiter, body, at)
        if part.name == b"model":
            named = _text(part, body)
            if model not in (None, named):
                raise _OddFormError
            model = named
        at = part.end + 2
    raise _OddFormError


def _part(delimiter: bytes, body: bytes, at: int) -> _Part:
    """The part whose delimiter ends at ``at``."""
    head_end = body.find(b"\r\n\r\n", at, at + MAX_PART_HEAD)
    if head_end < 0 or not body.startswith(b"\r\n", at):
        raise _OddFormError
    dispositions: list[bytes] = []
    is_plain = True
    for line in body[at + 2 : head_end].split(b"\r\n"):
        field, colon, value = line.partition(b":")
        if not colon or field != field.strip() or b"\n" in line or b"\r" in line:
            raise _OddFormError
        if field.lower() == b"content-disposition":
            dispositions.append(value)
        elif field.lower() == b"content-transfer-encoding" or _OTHER_CHARSET.search(value):
            is_plain = False
    name, is_file = _name(dispositions)
    start = head_end + 4
    # The line break before a delimiter belongs to it: an empty part begins with its own end.
    end = _find(b"\r\n" + delimiter, body, start)
    return _Part(name, is_plain and not is_file, start, end)


def _name(dispositions: list[bytes]) -> tuple[bytes, bool]:
    """Of the field, and whether it is a file."""
    found = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    if found is None:
        raise _OddFormError
    given = [(name.lower(), quoted or bare) for name, quoted, bare in _PARAMETER.findall(found[1])]
    parameters = dict(given)
    if len(parameters) < len(given) or b"name*" in parameters or b"name" not in parameters:
        raise _OddFormError
    return parameters[b"name"], not {b"filename", b"filename*"}.isdisjoint(parameters)


def _find(needle: bytes, body: bytes, start: int) -> int:
    while start < len(body):
        found = body.find(needle, start, start + _WINDOW_BYTES + len(needle))
        if found >= 0:
            return found
        start += _WINDOW_BYTES
    raise _OddFormError


def _text(part: _Part, body: bytes) -> str:
    if not part.is_plain or part.end - part.start > MAX_MODEL_BYTES:
        raise _OddFormError
    try:
        return body[part.start : part.end].decode()
    except UnicodeDecodeError as error:
        raise _OddFormError from error
