"""Bounds and times of the configuration: how much the router takes on, and how long it waits for whom."""

from typing import Annotated

from pydantic import Field, model_validator

from router.config_section import Section

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Limits(Section):
    """How much the router takes on.

    Attributes:
        max_body_bytes: a longer request body is answered 413.
        max_held_bytes: of all bodies above 64 KiB that are held at a time; a further such request is answered 429.
        max_in_flight: requests being served; a further one is answered 429.
        max_connections: of clients to each port, no more than half of the files that may be open; further ones are answered
            503.
        max_workers: a further one is refused, in this file and on the control port.
        max_attempts: workers that one request is sent to before its error is passed on.
        max_claims: blocks that the index keeps, each counted once a rank and tier; the oldest go. Each
            takes 180 to 300 bytes.
    """

    max_body_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 64 * 1024 * 1024
    max_held_bytes: Annotated[int, Field(ge=1, le=1 << 50)] = 1 << 30
    max_in_flight: Annotated[int, Field(ge=1)] = 4096
    max_connections: Annotated[int, Field(ge=1)] = 16_384
    max_workers: Annotated[int, Field(ge=1, le=10_000)] = 1024
    max_attempts: Annotated[int, Field(ge=1, le=16)] = 3
    max_claims: Annotated[int, Field(ge=1_000, le=1_000_000_000)] = 10_000_000

    @model_validator(mode="after")
    def _has_room(self) -> "Limits":
        if self.max_held_bytes < self.max_body_bytes:
            raise ValueError("max_held_bytes is at least max_body_bytes")
        return self


class Timeouts(Section):
    """Seconds. Nothing bounds a live answer as a whole: ``idle_s`` bounds silence between its chunks.

    Attributes:
        connect_s: to connect to a worker.
        first_byte_s: until the first byte of a worker's answer.
        idle_s: of silence within an answer.
        client_head_s: until a client has sent the head of a request; then 408.
        client_body_s: within which a client must send 4 KiB more of a body, or its end; then 408.
        client_read_s: within which a client must read some of an answer that waits for it.
        keep_alive_s: that an idle client connection is kept.
        probe_s: of each of the router's own calls to a worker, probes of its health apart.
    """

    connect_s: Seconds = 5.0
    first_byte_s: Seconds = 600.0
    idle_s: Seconds = 300.0
    client_head_s: Seconds = 15.0
    client_body_s: Seconds = 30.0
    client_read_s: Seconds = 300.0
    keep_alive_s: Seconds = 75.0
    probe_s: Seconds = 5.0
