"""The chosen rank, told to the engine in the way that it takes: in a header, or in a field of the body.

    {"text": …}  ─▶  {"text": …,"routed_dp_rank":3}

A field stands last: where a client names one, too, parsers take the last one. The body changes by it alone; one that
is compressed does not. An engine that is told in neither way gets the request as it came.
"""

from collections.abc import Sequence

from router.headers import DP_RANK, RawHeader
from scoring import Plan, RankPin

_ENCODING = b"content-encoding"
_BLANKS = b" \t\r\n"


def pinned(
    plan: Plan, headers: Sequence[RawHeader], body: bytes
) -> tuple[Sequence[RawHeader], bytes]:
    """Headers and body that tell the plan's rank; O(headers), and O(body) where it is told there."""
    if len(plan.dp_ranks) == 1 or plan.pin is RankPin.NONE:
        return headers, body
    rank = b"%d" % plan.dp_ranks.index(plan.rank.dp_rank)
    if plan.pin is RankPin.HEADER:
        return [*(field for field in headers if field[0] != DP_RANK), (DP_RANK, rank)], body
    if any(field[0] == _ENCODING for field in headers):
        return headers, body
    return headers, _with_last_field(body, plan.pin.value.encode(), rank)


def _with_last_field(body: bytes, name: bytes, value: bytes) -> bytes:
    """The JSON object with one more field; as it was where it is none, is empty, or is written in UTF-16 or 32."""
    end = len(body)
    while end and body[end - 1] in _BLANKS:
        end -= 1
    if body[end - 1 : end] != b"}" or b"\x00" in body[end - 4 : end] or b":" not in body:
        return body
    return b'%b,"%b":%b%b' % (body[: end - 1], name, value, body[end - 1 :])
