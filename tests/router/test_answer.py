"""The writer of answers."""

import pytest
from starlette.types import Message

from router.answer import Answer
from router.errors import ErrorKind, FrontDoorError, sse_error
from router.headers import RawHeader


class Sent:
    """What was sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def test_chunks_pass_as_they_come() -> None:
    sent = Sent()
    one = Answer(sent)
    await one.begin(200, [])
    await one.write(b"a")
    assert sent.body == b"a"
    await one.finish(b"b")
    assert sent.body == b"ab"
    assert [message.get("more_body") for message in sent.messages] == [None, True, False]


BROKEN = FrontDoorError(ErrorKind.STOPPING, "the end")
STREAM = (b"content-type", b"text/event-stream")


@pytest.mark.parametrize(
    ("headers", "last", "told"),
    [
        ([STREAM], b"data: 1\n\n", sse_error(BROKEN, "chat")),
        ([STREAM], b"data: 1\r\n\r\n", sse_error(BROKEN, "chat")),
        ([STREAM], b"data: 1", b"\n\n" + sse_error(BROKEN, "chat")),
        ([STREAM], b"", sse_error(BROKEN, "chat")),
        ([STREAM, (b"content-length", b"100")], b"data: 1\n\n", b""),
        ([STREAM, (b"content-encoding", b"gzip")], b"x", b""),
        ([(b"content-type", b"application/json")], b"{", b""),
    ],
)
async def test_a_stream_that_ends_early_says_so_in_an_event_of_its_own(
    headers: list[RawHeader], last: bytes, told: bytes
) -> None:
    sent = Sent()
    one = Answer(sent)
    await one.begin(200, headers)
    await one.write(last)
    await one.break_off(BROKEN, "chat")
    assert sent.body == last + told
    assert not one.is_finished
    assert all(message.get("more_body", True) for message in sent.messages)
