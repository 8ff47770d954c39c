"""Requests that two parsers may read differently, and other bytes that are none: what clients send to get one past a wall.

Each holds a request for ``/smuggled`` where some parser would see one. None of them reaches a worker.

Source: RFC 9112 §2.2, §3.2, §5, §6, §7.1, §11.2; the kinds are those of public work on request smuggling (CL.TE, TE.CL, TE.TE,
CL.0, chunk extensions, bare line ends, upgrades).
"""

from dataclasses import dataclass

HIDDEN = b"GET /smuggled HTTP/1.1\r\nHost: r\r\n\r\n"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n"
_PUT = b"PUT /x HTTP/1.1\r\nHost: r\r\n"
_CHUNKED = _PUT + b"Transfer-Encoding: chunked\r\n\r\n"
_TE = b"Transfer-Encoding: chunked\r\n"
_NONE = b"0\r\n\r\n"


@dataclass(frozen=True)
class Passing:
    """Odd bytes that are one request still, and leave the connection in step.

    Attributes:
        body: as the worker gets it.
    """

    raw: bytes
    target: str = "/x"
    body: bytes = b""


def _length(*values: bytes) -> bytes:
    return b"".join(b"Content-Length: %s\r\n" % value for value in values)


def _coded(value: bytes) -> bytes:
    """A body in chunks to whoever takes the value for chunked, and the hidden request to who does not."""
    return _PUT + b"Transfer-Encoding: " + value + b"\r\n\r\n" + _NONE + HIDDEN


LENGTHS = {
    "length, then chunks": _PUT + _length(b"%d" % len(_NONE + HIDDEN)) + _TE + b"\r\n" + _NONE + HIDDEN,
    "chunks, then length": _PUT + _TE + _length(b"4") + b"\r\n" + b"%x\r\n%s\r\n" % (len(HIDDEN), HIDDEN) + _NONE,
    "length of nothing, and chunks": _PUT + _length(b"0") + _TE + b"\r\n" + _NONE + HIDDEN,
    "length, and a coding that is none": _PUT + _length(b"5") + b"Transfer-Encoding: identity\r\n\r\n" + _NONE + HIDDEN,
    "two lengths": _PUT + _length(b"0", b"%d" % len(HIDDEN)) + b"\r\n" + HIDDEN,
    "two lengths, the longer first": _PUT + _length(b"%d" % len(HIDDEN), b"0") + b"\r\n" + HIDDEN,
    "the same length twice": _PUT + _length(b"2", b"2") + b"\r\nhi" + HIDDEN,
    "two lengths in one field": _PUT + _length(b"0, %d" % len(HIDDEN)) + b"\r\n" + HIDDEN,
    "the same length twice in one field": _PUT + _length(b"2, 2") + b"\r\nhi" + HIDDEN,
    "a length with a sign": _PUT + _length(b"+2") + b"\r\nhi" + HIDDEN,
    "a length below nothing": _PUT + _length(b"-1") + b"\r\n" + HIDDEN,
    "a length in hex": _PUT + _length(b"0x2") + b"\r\nhi" + HIDDEN,
    "a length with a point": _PUT + _length(b"2.0") + b"\r\nhi" + HIDDEN,
    "a length with a power": _PUT + _length(b"2e0") + b"\r\nhi" + HIDDEN,
    "a length with a space within": _PUT + _length(b"2 2") + b"\r\nhi" + HIDDEN,
    "a length with a digit of another script": _PUT + _length("２".encode()) + b"\r\nhi" + HIDDEN,
    "a length of no digits": _PUT + _length(b"") + b"\r\n" + HIDDEN,
    "a length in quotes": _PUT + _length(b'"2"') + b"\r\nhi" + HIDDEN,
    "a length beyond 64 bits": _PUT + _length(b"18446744073709551618") + b"\r\nhi" + HIDDEN,
    "a length beyond 64 bits by many digits": _PUT + _length(b"1" * 400) + b"\r\nhi" + HIDDEN,
    "a space before a length's colon": _PUT + b"Content-Length : 2\r\n\r\nhi" + HIDDEN,
    "a length in a name of other letters": _PUT + b"Content_Length: 2\r\nContent-Length: x\r\n\r\nhi" + HIDDEN,
    "a folded length": _PUT + b"Content-Length:\r\n 2\r\n\r\nhi" + HIDDEN,
    "a length behind a bare CR": _PUT + b"X: a\rContent-Length: 2\r\n\r\nhi" + HIDDEN,
}  # fmt: skip

CODINGS = {
    "identity": _coded(b"identity"),
    "chunked, identity": _coded(b"chunked, identity"),
    "identity, chunked": _coded(b"identity, chunked"),
    "gzip, chunked": _coded(b"gzip, chunked"),
    "chunked twice": _coded(b"chunked, chunked"),
    "two fields": _PUT + _TE + b"Transfer-Encoding: identity\r\n\r\n" + _NONE + HIDDEN,
    "two fields, chunked last": _PUT + b"Transfer-Encoding: identity\r\n" + _TE + b"\r\n" + _NONE + HIDDEN,
    "two fields, both chunked": _PUT + _TE + _TE + b"\r\n" + _NONE + HIDDEN,
    "two fields of other letters": _PUT + _TE + b"transfer-encoding: x\r\n\r\n" + _NONE + HIDDEN,
    "xchunked": _coded(b"xchunked"),
    "chunkedx": _coded(b"chunkedx"),
    "in quotes": _coded(b'"chunked"'),
    "in single quotes": _coded(b"'chunked'"),
    "with a parameter": _coded(b"chunked;q=1"),
    "with a comma before": _coded(b",chunked"),
    "with a comma behind": _coded(b"chunked,"),
    "with blanks behind": _coded(b"chunked \t"),
    "with a vertical tab before": _coded(b"\x0bchunked"),
    "with a form feed behind": _coded(b"chunked\x0c"),
    "with a NUL behind": _coded(b"chunked\x00"),
    "with a byte beyond ASCII": _coded(b"chunked\xa0"),
    "with a long s": _coded("chunKed".replace("K", "\u212a").encode()),
    "of no text": _coded(b""),
    "folded": _PUT + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + _NONE + HIDDEN,
    "folded by a tab": _PUT + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n" + _NONE + HIDDEN,
    "with a space before the colon": _PUT + b"Transfer-Encoding : chunked\r\n\r\n" + _NONE + HIDDEN,
    "with a tab before the colon": _PUT + b"Transfer-Encoding\t: chunked\r\n\r\n" + _NONE + HIDDEN,
    "with a space before the name": _PUT + b" Transfer-Encoding: chunked\r\n\r\n" + _NONE + HIDDEN,
    "behind a bare LF": _PUT + b"X: a\nTransfer-Encoding: chunked\r\n\r\n" + _NONE + HIDDEN,
    "behind a bare CR": _PUT + b"X: a\rTransfer-Encoding: chunked\r\n\r\n" + _NONE + HIDDEN,
    "with a NUL in the name": _PUT + b"Transfer-\x00Encoding: chunked\r\n\r\n" + _NONE + HIDDEN,
    "of HTTP/1.0": b"PUT /x HTTP/1.0\r\nHost: r\r\n" + _TE + b"\r\n" + _NONE + HIDDEN,
    "of HTTP/1.0, with a length": b"PUT /x HTTP/1.0\r\n" + _length(b"5") + _TE + b"\r\n" + _NONE + HIDDEN,
}  # fmt: skip

CHUNKS = {
    "a size beyond 64 bits": _CHUNKED + b"10000000000000002\r\nhi\r\n" + _NONE + HIDDEN,
    "a size of many digits": _CHUNKED + b"f" * 17 + b"\r\nhi\r\n" + _NONE + HIDDEN,
    "a size below nothing": _CHUNKED + b"-2\r\nhi\r\n" + _NONE + HIDDEN,
    "a size with a sign": _CHUNKED + b"+2\r\nhi\r\n" + _NONE + HIDDEN,
    "a size with 0x": _CHUNKED + b"0x2\r\nhi\r\n" + _NONE + HIDDEN,
    "a size of no digits": _CHUNKED + b"\r\nhi\r\n" + _NONE + HIDDEN,
    "a size with a space before": _CHUNKED + b" 2\r\nhi\r\n" + _NONE + HIDDEN,
    "a size with a space within": _CHUNKED + b"0 2\r\nhi\r\n" + _NONE + HIDDEN,
    "a size with an underscore": _CHUNKED + b"0_2\r\nhi\r\n" + _NONE + HIDDEN,
    "a size with a letter beyond hex": _CHUNKED + b"2g\r\nhi\r\n" + _NONE + HIDDEN,
    "a size behind a NUL": _CHUNKED + b"\x002\r\nhi\r\n" + _NONE + HIDDEN,
    "a size that ends in a bare LF": _CHUNKED + b"2\nhi\r\n" + _NONE + HIDDEN,
    "a size that ends in a bare CR": _CHUNKED + b"2\rhi\r\n" + _NONE + HIDDEN,
    "an extension that ends in a bare LF": _CHUNKED + b"2;\nxx\r\n" + b"%x\r\n" % len(HIDDEN) + HIDDEN + _NONE,
    "an extension with a bare CR": _CHUNKED + b"2;a\rb\r\nhi\r\n" + _NONE + HIDDEN,
    "an extension with a NUL": _CHUNKED + b"2;a\x00b\r\nhi\r\n" + _NONE + HIDDEN,
    "a chunk longer than said": _CHUNKED + b"2\r\nhi!\r\n" + _NONE + HIDDEN,
    "a chunk that ends in a bare LF": _CHUNKED + b"2\r\nhi\n" + _NONE + HIDDEN,
    "a chunk that ends in a bare CR": _CHUNKED + b"2\r\nhi\r" + _NONE + HIDDEN,
    "a chunk without a line end": _CHUNKED + b"2\r\nhi" + _NONE + HIDDEN,
    "an end by bare LFs": _CHUNKED + b"0\n\n" + HIDDEN,
    "an end by a LF behind a CRLF": _CHUNKED + b"0\r\n\n" + HIDDEN,
    "an end by bare CRs": _CHUNKED + b"0\r\r" + HIDDEN,
    "a length in the trailers": _CHUNKED + b"0\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
    "a coding in the trailers": _CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % len(HIDDEN) + HIDDEN,
    "a trailer of no name": _CHUNKED + b"0\r\n: x\r\n\r\n" + HIDDEN,
    "a trailer with a space before the colon": _CHUNKED + b"0\r\nX : y\r\n\r\n" + HIDDEN,
    "a folded trailer": _CHUNKED + b"0\r\nX: y\r\n z\r\n\r\n" + HIDDEN,
    "a trailer that ends in a bare LF": _CHUNKED + b"0\r\nX: y\n\n" + HIDDEN,
    "a trailer with a NUL": _CHUNKED + b"0\r\nX: \x00\r\n\r\n" + HIDDEN,
}  # fmt: skip

LINES = {
    "a bare LF behind the line": b"GET /x HTTP/1.1\nHost: r\r\n\r\n" + HIDDEN,
    "bare LFs throughout": b"GET /x HTTP/1.1\nHost: r\n\n" + HIDDEN,
    "a bare LF ends the head": b"GET /x HTTP/1.1\r\nHost: r\r\n\n" + HIDDEN,
    "a bare CR behind the line": b"GET /x HTTP/1.1\rHost: r\r\n\r\n" + HIDDEN,
    "a bare CR in a value": b"GET /x HTTP/1.1\r\nHost: r\r\nX: a\rb\r\n\r\n" + HIDDEN,
    "a CR before a CRLF": b"GET /x HTTP/1.1\r\nHost: r\r\nX: a\r\r\n\r\n" + HIDDEN,
    "a folded field": b"GET /x HTTP/1.1\r\nHost: r\r\nX: a\r\n b\r\n\r\n" + HIDDEN,
    "a field before the first": b"GET /x HTTP/1.1\r\n X: a\r\nHost: r\r\n\r\n" + HIDDEN,
    "a space before the colon": b"GET /x HTTP/1.1\r\nHost: r\r\nX : a\r\n\r\n" + HIDDEN,
    "a name of no text": b"GET /x HTTP/1.1\r\nHost: r\r\n: a\r\n\r\n" + HIDDEN,
    "a name that is no token": b"GET /x HTTP/1.1\r\nHost: r\r\nX(y): a\r\n\r\n" + HIDDEN,
    "a name beyond ASCII": b"GET /x HTTP/1.1\r\nHost: r\r\nX\xe9: a\r\n\r\n" + HIDDEN,
    "a line without a colon": b"GET /x HTTP/1.1\r\nHost: r\r\nX\r\n\r\n" + HIDDEN,
    "a NUL in a value": b"GET /x HTTP/1.1\r\nHost: r\r\nX: a\x00b\r\n\r\n" + HIDDEN,
    "a control byte in a value": b"GET /x HTTP/1.1\r\nHost: r\r\nX: a\x08b\r\n\r\n" + HIDDEN,
    "a DEL in a value": b"GET /x HTTP/1.1\r\nHost: r\r\nX: a\x7fb\r\n\r\n" + HIDDEN,
    "a NUL in the target": b"GET /\x00 HTTP/1.1\r\nHost: r\r\n\r\n" + HIDDEN,
    "a space in the target": b"GET /a b HTTP/1.1\r\nHost: r\r\n\r\n" + HIDDEN,
    "a tab for a space": b"GET\t/x\tHTTP/1.1\r\nHost: r\r\n\r\n" + HIDDEN,
    "two spaces behind the target": b"GET /x  HTTP/1.1\r\nHost: r\r\n\r\n" + HIDDEN,
    "a space behind the version": b"GET /x HTTP/1.1 \r\nHost: r\r\n\r\n" + HIDDEN,
    "a space before the line": b" GET /x HTTP/1.1\r\nHost: r\r\n\r\n" + HIDDEN,
    "a version of letters": b"GET /x HTTP/1.x\r\nHost: r\r\n\r\n" + HIDDEN,
    "a version of more digits": b"GET /x HTTP/1.10\r\nHost: r\r\n\r\n" + HIDDEN,
    "a version in other letters": b"GET /x http/1.1\r\nHost: r\r\n\r\n" + HIDDEN,
    "HTTP/0.9": b"GET /x\r\n" + HIDDEN,
    "HTTP/1.2": b"GET /x HTTP/1.2\r\nHost: r\r\n\r\n" + HIDDEN,
    "HTTP/3": b"GET /x HTTP/3.0\r\nHost: r\r\n\r\n" + HIDDEN,
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "a greeting of TLS": b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(200)),
    "a PROXY line": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + HIDDEN,
    "NULs": b"\x00" * 64,
    "the highest bytes": b"\xff" * 64,
    "a greeting of SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a tunnel": b"CONNECT w:443 HTTP/1.1\r\nHost: w:443\r\n\r\n" + HIDDEN,
    "a tunnel with a body": b"CONNECT w:443 HTTP/1.1\r\nHost: r\r\nContent-Length: 2\r\n\r\nhi" + HIDDEN,
}  # fmt: skip

REFUSED = {
    f"{kind}: {name}": raw
    for kind, table in {
        "length": LENGTHS, "coding": CODINGS, "chunks": CHUNKS, "line": LINES,
    }.items()
    for name, raw in table.items()
}  # fmt: skip

PASSING = {
    "a coding in upper case": Passing(_PUT + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\nhi\r\n0\r\n\r\n", body=b"hi"),
    "a coding behind blanks": Passing(_PUT + b"Transfer-Encoding: \t chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", body=b"hi"),
    "a length with zeros before": Passing(_PUT + _length(b"0002") + b"\r\nhi", body=b"hi"),
    "a length behind blanks": Passing(_PUT + b"Content-Length:\t 2 \t\r\n\r\nhi", body=b"hi"),
    "a body that is a request": Passing(_PUT + _length(b"%d" % len(HIDDEN)) + b"\r\n" + HIDDEN, body=HIDDEN),
    "a chunk that is a request": Passing(_CHUNKED + b"%X\r\n%s\r\n" % (len(HIDDEN), HIDDEN) + _NONE, body=HIDDEN),
    "a body of GET": Passing(b"GET /x HTTP/1.1\r\nHost: r\r\n" + _length(b"%d" % len(HIDDEN)) + b"\r\n" + HIDDEN, body=HIDDEN),
    "a size with zeros before": Passing(_CHUNKED + b"0002\r\nhi\r\n000\r\n\r\n", body=b"hi"),
    "an extension": Passing(_CHUNKED + b'2;a=b;c="d"\r\nhi\r\n0;e\r\n\r\n', body=b"hi"),
    "trailers": Passing(_CHUNKED + b"2\r\nhi\r\n0\r\nHost: evil\r\nAuthorization: Bearer x\r\nX-Request-Id: y\r\n\r\n", body=b"hi"),
    "two spaces before the target": Passing(b"GET  /x HTTP/1.1\r\nHost: r\r\n\r\n"),
    "empty lines before": Passing(b"\r\n\r\n\r\n" + _PUT + _length(b"2") + b"\r\nhi", body=b"hi"),
    "an origin in the target": Passing(b"GET http://evil.example:99/x HTTP/1.1\r\nHost: r\r\n\r\n"),
    "an origin with a user": Passing(b"GET http://u:p@evil.example/x HTTP/1.1\r\nHost: r\r\n\r\n"),
    "two slashes": Passing(b"GET //evil.example/x HTTP/1.1\r\nHost: r\r\n\r\n", "//evil.example/x"),
    "dots": Passing(b"GET /a/../../x HTTP/1.1\r\nHost: r\r\n\r\n", "/a/../../x"),
    "line ends that are written": Passing(
        b"GET /x%0d%0aX:%20y HTTP/1.1\r\nHost: r\r\n\r\n", "/x%0d%0aX:%20y"
    ),
    "an upgrade": Passing(
        _PUT + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + _length(b"2") + b"\r\nhi",
        body=b"hi",
    ),
    "an upgrade to WebSocket": Passing(
        b"GET /x HTTP/1.1\r\nHost: r\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    ),
    "fields that speak of the hop": Passing(
        _PUT + b"Connection: keep-alive, X-Gone, Content-Length, Host\r\nX-Gone: 1\r\nTE: trailers\r\nProxy-Connection: x\r\nKeep-Alive: 1\r\n"
        + _length(b"2") + b"\r\nhi", body=b"hi"
    ),
    "a value of every byte beyond ASCII": Passing(b"GET /x HTTP/1.1\r\nHost: r\r\nX: %s\r\n\r\n" % bytes(range(0x80, 0x100))),
    "an expectation that is none": Passing(_PUT + b"Expect: 200-ok\r\n" + _length(b"2") + b"\r\nhi", body=b"hi"),
}  # fmt: skip
