"""Every error has an answer that clients can read."""

import json

import pytest

from router.errors import ErrorKind, FrontDoorError, sse_error


@pytest.mark.parametrize("kind", ErrorKind)
def test_status_body_and_headers(kind: ErrorKind) -> None:
    error = FrontDoorError(kind, "what went wrong", param="model")
    body = json.loads(error.body())["error"]
    assert body == {
        "message": "what went wrong",
        "type": body["type"],
        "param": "model",
        "code": kind.value,
    }
    headers = dict(error.headers())
    assert headers[b"content-length"] == str(len(error.body())).encode()
    assert 400 <= error.status < 600
    if error.status in (429, 503):
        assert int(headers[b"retry-after"]) >= 1
    assert (body["type"] == "invalid_request_error") is (error.status < 500 and error.status != 429)
    assert sse_error(error, "chat") == b"data: " + error.body() + b"\n\n"
    name, data, *rest = sse_error(error, "messages").split(b"\n")
    assert (name, rest) == (b"event: error", [b"", b""])
    assert json.loads(data.removeprefix(b"data: ")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "what went wrong", "code": kind.value},
    }


def test_what_clients_say_is_cut_and_can_be_written() -> None:
    error = FrontDoorError(ErrorKind.MODEL_NOT_FOUND, "no \ud800 " + "n" * 10**6, param="\udfff")
    assert len(error.body()) < 2048
    assert json.loads(error.body())["error"]["param"] == "?"
