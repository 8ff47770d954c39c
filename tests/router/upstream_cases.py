"""What workers answer: whole answers, and what is none."""

from dataclasses import dataclass

from router.upstream_connection import MAX_FIELDS, MAX_HEAD_BYTES, MAX_INTERIM

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@dataclass(frozen=True)
class Good:
    """A whole answer.

    Attributes:
        ends_by_close: nothing but the end of the connection ends it.
    """

    raw: bytes
    status: int
    body: bytes
    is_kept: bool = True
    method: str = "POST"
    ends_by_close: bool = False


GOOD = {
    "length": Good(OK, 200, b"hello"),
    "no bytes": Good(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
    "chunks": Good(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", 200, b"abc"
    ),
    "chunks, upper case": Good(
        b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n", 200, b"0123456789"
    ),
    "trailers": Good(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\n", 200, b"a"
    ),
    "interim": Good(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n" + OK, 200, b"hello"
    ),
    "no content": Good(b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", 204, b""),
    "no content, of no bytes": Good(b"HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n", 204, b""),
    "not modified": Good(b"HTTP/1.1 304 X\r\nETag: 1\r\n\r\n", 304, b""),
    "not modified, with a length": Good(b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", 304, b"", is_kept=False),
    "no content, in chunks": Good(b"HTTP/1.1 204 X\r\nTransfer-Encoding: chunked\r\n\r\n", 204, b"", is_kept=False),
    "after line ends": Good(b"\r\n\r\n" + OK, 200, b"hello"),
    "no reason": Good(b"HTTP/1.1 404\r\nContent-Length: 1\r\n\r\nx", 404, b"x"),
    "says close": Good(b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nhi", 200, b"hi", is_kept=False),
    "old, with a length": Good(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, b"hi", is_kept=False),
    "old, kept": Good(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", 200, b"hi"),
    "until the end": Good(b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nabc", 200, b"abc", is_kept=False, ends_by_close=True),
    "old, until the end": Good(b"HTTP/1.0 200 OK\r\n\r\nabc", 200, b"abc", is_kept=False, ends_by_close=True),
    "head, with a length": Good(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", 200, b"", is_kept=False, method="HEAD"),
    "head, in chunks": Good(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, b"", is_kept=False, method="HEAD"),
    "head, neither": Good(b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\n", 200, b"", is_kept=False, method="HEAD"),
    "head, after an interim one": Good(
        b"HTTP/1.1 103 X\r\nLink: </a>\r\n\r\nHTTP/1.1 404 X\r\nContent-Length: 7\r\n\r\n", 404, b"", is_kept=False, method="HEAD"
    ),
}  # fmt: skip

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BAD = {
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "http 0.9": b"<html>hello</html>",
    "another protocol": b"RTSP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "another protocol, and a version of ours": b"RTSP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "another one": b"ICE/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "line ends, then another protocol": b"\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "interim, then another protocol": b"HTTP/1.1 103 X\r\nLink: </a>\r\n\r\nRTSP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "interim, line ends, then another one": b"HTTP/1.1 100 X\r\n\r\n\r\nICE/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "old interim, then another protocol": b"HTTP/1.0 100 X\r\n\r\nRTSP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "version 2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "version 0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "interim, then version 2.0": b"HTTP/1.1 103 X\r\n\r\nHTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "chunks of version 1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "no status": b"HTTP/1.1 abc OK\r\n\r\n",
    "odd status": b"HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n",
    "status 0": b"HTTP/1.1 000 X\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "a bare line feed behind the status": b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello",
    "a bare line feed ends the head": HEAD + b"Content-Length: 5\r\n\nhello",
    "a bare line feed before a length": HEAD + b"X: a\nContent-Length: 5\r\n\r\nhello",
    "a bare return before a length": HEAD + b"X: a\rContent-Length: 5\r\n\r\nhello",
    "a bare return in the reason": b"HTTP/1.1 200 O\rK\r\nContent-Length: 5\r\n\r\nhello",
    "a zero byte in a value": HEAD + b"X: a\x00b\r\nContent-Length: 5\r\n\r\nhello",
    "a zero byte in a name": HEAD + b"X\x00: a\r\nContent-Length: 5\r\n\r\nhello",
    "the same length twice": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a length in hex": HEAD + b"Content-Length: 0x5\r\n\r\nhello",
    "a folded length": HEAD + b"Content-Length:\r\n 5\r\n\r\nhello",
    "a coding with a parameter": HEAD + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "a coding of almost that name": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a coding behind a space before the colon": HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "a length in the trailers": CHUNKED + b"1\r\na\r\n0\r\nContent-Length: 5\r\n\r\nhello",
    "a chunk that ends in a bare line feed": CHUNKED + b"1\r\na\n0\r\n\r\n",
    "an extension that ends in a bare line feed": CHUNKED + b"1;\na\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "a length list": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "signed length": HEAD + b"Content-Length: +5\r\n\r\nhello",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "length and chunks": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "another coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\nabc",
    "two codings": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two coding fields": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked is not last": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "space before colon": HEAD + b"Content-Length : 5\r\n\r\nhello",
    "no name": HEAD + b": x\r\n\r\n",
    "name is no token": HEAD + b"a(b): x\r\nContent-Length: 0\r\n\r\n",
    "control byte in a value": HEAD + b"X-A: a\x01b\r\nContent-Length: 0\r\n\r\n",
    "folded field": HEAD + b"X-A: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "switching": b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "switching, unnamed": b"HTTP/1.1 101 X\r\n\r\n",
    "chunk size is no number": CHUNKED + b"xyz\r\nabc\r\n",
    "chunk size is empty": CHUNKED + b"\r\nabc\r\n",
    "chunk size is negative": CHUNKED + b"-1\r\nabc\r\n",
    "chunk size overflows": CHUNKED + b"fffffffffffffffff\r\nabc\r\n",
    "chunk size with 0x": CHUNKED + b"0x3\r\nabc\r\n",
    "chunk is longer than said": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "chunk is shorter than said": CHUNKED + b"4\r\nabc\r\n0\r\n\r\n",
    "bare line feeds in chunks": CHUNKED + b"3\nabc\n0\n\n",
    "head of bytes without end": HEAD + b"X: " + b"y" * (MAX_HEAD_BYTES + 1),
    "head too large in one read": HEAD + b"X: " + b"y" * MAX_HEAD_BYTES + b"\r\nContent-Length: 0\r\n\r\n",
    "too many fields": HEAD + b"X: y\r\n" * (MAX_FIELDS + 1) + b"Content-Length: 0\r\n\r\n",
    "interim ones without end": b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM + 1) + OK,
    "interim with a length": b"HTTP/1.1 104 X\r\nContent-Length: 5\r\n\r\nhello" + OK,
    "interim with a length, alone": b"HTTP/1.1 104 X\r\nContent-Length: 5\r\n\r\nhello",
    "interim in chunks": b"HTTP/1.1 199 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" + OK,
    "interim that takes the answer for its body": b"HTTP/1.1 104 X\r\nContent-Length: %d\r\n\r\n%s" % (len(OK), OK),
    "early hints with a length": b"HTTP/1.1 103 X\r\nContent-Length: 5\r\n\r\nhello" + OK,
    "large interim ones": (b"HTTP/1.1 103 X\r\nX: " + b"y" * 9000 + b"\r\n\r\n") * 8 + OK,
    "trailers without end": CHUNKED + b"1\r\na\r\n0\r\n" + b"X: y\r\n" * MAX_HEAD_BYTES,
}  # fmt: skip
