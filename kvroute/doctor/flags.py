"""What to change on an engine, in the words of its own command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from protocol import EngineKind, WorkerSpec


class Dialect(StrEnum):
    """Whose flags are meant."""

    SGLANG = "sglang"
    VLLM = "vllm"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class Flags:
    """Advice for one engine.

    Attributes:
        events: turns events on.
        bind: makes the engine listen where others can reach it.
        cache_report: makes answers say how many prompt tokens were cached.
        block_size: sets the tokens a block.
    """

    events: str
    bind: str
    cache_report: str
    block_size: str
    replay: str
    buffer: str
    topic: str
    model_name: str

    def replay_beside(self, events_port: int, num_ranks: int) -> str:
        """Turns the replay socket on, at a port that is clear of every rank's."""
        return self.replay.replace("PORT", str(events_port + max(100, num_ranks)))


_CONFIG = "--kv-events-config"
_ON = '"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657"'
_REPLAY = f'{_CONFIG}: add "replay_endpoint": "tcp://*:PORT"'
_BIND = f'{_CONFIG}: "endpoint": "tcp://*:PORT", so that it binds every interface'
_BUFFER = f'{_CONFIG}: raise "buffer_steps"'
_TOPIC = f'{_CONFIG}: the same "topic" on every rank, best ""'

_FLAGS = {
    Dialect.SGLANG: Flags(
        events=f"{_CONFIG} '{{{_ON}}}'",
        bind=_BIND,
        cache_report="--enable-cache-report",
        block_size="--page-size",
        replay=_REPLAY,
        buffer=_BUFFER,
        topic=_TOPIC,
        model_name="--served-model-name",
    ),
    Dialect.VLLM: Flags(
        events=f"{_CONFIG} '{{\"enable_kv_cache_events\": true, {_ON}}}'",
        bind=_BIND,
        cache_report="--enable-prompt-tokens-details",
        block_size="--block-size",
        replay=_REPLAY,
        buffer=_BUFFER,
        topic=_TOPIC,
        model_name="--served-model-name",
    ),
    Dialect.SIMULATED: Flags(
        events="leave out --no-events",
        bind="--host 0.0.0.0",
        cache_report="nothing: it always reports",
        block_size="--page-size",
        replay="leave out --no-replay",
        buffer="nothing: buffer_steps has no flag",
        topic="nothing: topic has no flag",
        model_name="--model-name",
    ),
}


SIMULATED_KEY = "kvroute_worker"
"""What a simulated worker says of itself, beside what its engine says."""


def dialect_of(spec: WorkerSpec, info: Mapping[str, object]) -> Dialect:
    """Whose flags the worker takes, by its description."""
    if SIMULATED_KEY in info:
        return Dialect.SIMULATED
    return Dialect.VLLM if spec.engine is EngineKind.VLLM else Dialect.SGLANG


def flags_of(dialect: Dialect) -> Flags:
    """Its flags."""
    return _FLAGS[dialect]
