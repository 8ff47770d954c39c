"""The writer of answers, for clients that know chunks and for those that do not."""

import pytest
from starlette.types import Message

from router import answer
from router.answer import Answer, AnswerTooLongError
from router.errors import ErrorKind, FrontDoorError


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


async def test_without_chunks_the_body_is_collected() -> None:
    sent = Sent()
    one = Answer(sent, knows_chunks=False)
    await one.begin(200, [(b"x-a", b"1")])
    await one.write(b"a")
    assert (sent.messages, one.is_begun) == ([], False)
    await one.finish(b"b")
    assert sent.messages[0]["headers"] == [(b"x-a", b"1"), (b"content-length", b"2")]
    assert sent.body == b"ab"


async def test_what_is_too_long_to_be_collected_can_still_be_refused() -> None:
    sent = Sent()
    one = Answer(sent, knows_chunks=False)
    await one.begin(200, [])
    with pytest.raises(AnswerTooLongError):
        await one.write(b"x" * (answer.MAX_COLLECTED_BYTES + 1))
    refusal = FrontDoorError(ErrorKind.INTERNAL, "too long")
    await one.refuse(refusal)
    assert sent.messages[0]["status"] == 500
    assert sent.body == refusal.body()
