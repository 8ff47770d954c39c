"""Observers that keep what they are told, and records of requests that never were."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from router.headers import RawHeader
from router.request_record import Attempt, RequestRecord
from scoring import Outcome, OutcomeKind, Plan, PlanRequest
from tests.router.stub_brain import StubBrain


@dataclass
class KeptRecords:
    """Keeps the records of requests that have ended."""

    begun_with: list[Sequence[RawHeader]] = field(default_factory=list)
    ended_records: list[RequestRecord] = field(default_factory=list)
    has_ended: asyncio.Event = field(default_factory=asyncio.Event)

    def begun(self, record: RequestRecord, headers: Sequence[RawHeader]) -> None:
        """Keep the head."""
        self.begun_with.append(headers)

    def ended(self, record: RequestRecord) -> None:
        """Keep the record."""
        self.ended_records.append(record)
        self.has_ended.set()

    async def only(self) -> RequestRecord:
        """The record of the one request that there is, once it has ended."""
        async with asyncio.timeout(5):
            await self.has_ended.wait()
        (record,) = self.ended_records
        return record


def record(**changes: object) -> RequestRecord:
    """A chat that a worker has served: 12 ms to its plan, 40 to its first byte, 100 in all."""
    request = PlanRequest(
        "id-1", "chat", "m", None, 1.0, is_streaming=True, timing_us={"render": 50, "tokenize": 200}
    )
    plan = StubBrain({"w0": "http://10.0.0.1:8000"}).plan(request, 0.0)
    made = RequestRecord(
        request_id="id-1",
        method="POST",
        path="/v1/chat/completions",
        address="10.1.2.3",
        started_at=50.0,
        time=1_700_000_000.5,
        api="chat",
        route="/v1/chat/completions",
        client="team-a",
        asked=request,
        asked_at=50.010,
        waits=[(50.010, 50.011)],
        attempts=[attempt(plan)],
        bytes_in=1000,
        bytes_out=2000,
        status=200,
        first_byte_at=50.040,
        ended_at=50.100,
        is_finished=True,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def attempt(plan: Plan) -> Attempt:
    """One that went well."""
    return Attempt(
        plan,
        asked_at=50.011,
        planned_at=50.012,
        span_id=0xABC,
        num_sends=1,
        sent_at=50.013,
        head_at=50.020,
        status=200,
        first_byte_at=50.039,
        ended_at=50.099,
        outcome=Outcome(OutcomeKind.COMPLETED, 100, 64, 20),
    )


HOSTILE = (
    'a" outcome="forged',
    "a\nb",
    "a\r\n{}",
    "\x1b[2Jcleared",
    "\x00",
    "\u202egnp.exe",
    "\ud800",
    "x" * 1_000_000,
    "\x7f\x85\u2028",
    "é 日本",
    "a=b",
    "",
)


def hostile(text: str) -> RequestRecord:
    """A request with this text wherever a client or worker can put some."""
    made = record(method=text, path=text)
    assert made.asked is not None
    made.asked = made.asked._replace(model=text)
    return made
