"""The last bytes of an answer, kept while it is relayed and read once it has ended.

The relay parses nothing on the way. A bounded copy of the end suffices, for usage and errors stand
there: in the last event of a stream, after the choices of a JSON body. What lies further up is not
seen, and then the engine has reported nothing.

    chat, completions   "usage": {"prompt_tokens", "completion_tokens", "prompt_tokens_details": {"cached_tokens"}}
    responses           "usage": {"input_tokens", "output_tokens", "input_tokens_details": {"cached_tokens"}}
    messages            "usage": {"input_tokens", "output_tokens", "cache_read_input_tokens", …} (uncached, and cached beside it)
    generate (SGLang)   "meta_info": {"prompt_tokens", "completion_tokens", "cached_tokens"}
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import orjson

TAIL_BYTES = 4096
_SLACK_BYTES = 32 * 1024
_META = b'"meta_info":'
_DECODER = json.JSONDecoder()
_ERROR_NAMES = frozenset({b"error", b"response.failed"})
_ERROR_DATA = (
    b'{"error":',
    b'{"error" :',
    b'{"type":"error"',
    b'{"type": "error"',
    b'{"object":"error"',
    b'{"object": "error"',
)
_NO_ERROR_DATA = (b'{"error":null', b'{"error": null')


class Usage(NamedTuple):
    """Tokens as the engine reports them; None where it reports nothing."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


class Tail:
    """The last ``TAIL_BYTES`` of an answer. Holds at most 36 KiB; appending is O(chunk), amortised."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: bytes | bytearray = b""  # one chunk as it is, or several in a buffer

    def append(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        kept = self._kept
        if not kept or len(chunk) >= TAIL_BYTES:
            self._kept = chunk[-TAIL_BYTES:]
            return
        if isinstance(kept, bytes):
            kept = self._kept = bytearray(kept)
        kept += chunk
        if len(kept) > _SLACK_BYTES:
            del kept[:-TAIL_BYTES]

    def last_bytes(self) -> bytes:
        """The end of the body."""
        return bytes(self._kept[-TAIL_BYTES:])

    def ends_event(self) -> bool:
        """Does the body end between two server-sent events?"""
        end = self._kept[-4:]
        return not end or end.endswith((b"\n\n", b"\r\n\r\n"))


def read_usage(tail: bytes) -> Usage:
    """What an answer's end says about tokens. Counts that are no whole numbers are not taken."""
    meta = _object_after(tail, _META) if _META in tail else None
    if meta is not None:
        return Usage(
            _count(meta, "prompt_tokens"),
            _count(meta, "cached_tokens"),
            _count(meta, "completion_tokens"),
        )
    usage = _object_after(tail, b'"usage":')
    if usage is None:
        return Usage()
    if "input_tokens" in usage or "cache_read_input_tokens" in usage:
        return _input_output_usage(usage)
    return Usage(
        _count(usage, "prompt_tokens"),
        _detail(usage, "prompt_tokens_details"),
        _count(usage, "completion_tokens"),
    )


def has_error_event(tail: bytes) -> bool:
    """Did a stream of events end in an error? An engine that dies says so under status 200."""
    for line in tail.splitlines():
        if line.startswith(b"event:") and line[6:].strip() in _ERROR_NAMES:
            return True
        if line.startswith(b"data:"):
            data = line[5:].lstrip()
            if data.startswith(_ERROR_DATA):
                return not data.startswith(_NO_ERROR_DATA)
    return False


def _input_output_usage(usage: Mapping[str, object]) -> Usage:
    """Responses count cached tokens within the input, messages beside it."""
    prompt = _count(usage, "input_tokens")
    output = _count(usage, "output_tokens")
    if "input_tokens_details" in usage:
        return Usage(prompt, _detail(usage, "input_tokens_details"), output)
    read = _count(usage, "cache_read_input_tokens")
    created = _count(usage, "cache_creation_input_tokens")
    if prompt is not None:
        prompt += (read or 0) + (created or 0)
    return Usage(prompt, read, output)


def _object_after(tail: bytes, label: bytes) -> Mapping[str, object] | None:
    """The last JSON object that follows ``label``. Within a JSON string the label cannot stand: its
    quotes would be escaped."""
    end = len(tail)
    while (at := tail.rfind(label, 0, end)) >= 0:
        last = _last_object(tail, at + len(label))
        if last is not None:
            return last
        text = tail[at + len(label) :].decode("utf-8", "replace").lstrip()
        try:
            found, _ = _DECODER.raw_decode(text)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return found
        end = at
    return None


def _last_object(tail: bytes, start: int) -> Mapping[str, object] | None:
    """The object that begins there, if it is the last thing in that of its line, as usage mostly is."""
    end = tail.find(b"\n", start)
    text = tail[start:] if end < 0 else tail[start:end]
    if not text.endswith(b"}}"):
        return None
    try:
        found = orjson.loads(text[:-1])
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _count(fields: Mapping[str, object], name: str) -> int | None:
    value = fields.get(name)
    return value if type(value) is int and value >= 0 else None


def _detail(usage: Mapping[str, object], name: str) -> int | None:
    details = usage.get(name)
    return _count(details, "cached_tokens") if isinstance(details, dict) else None
