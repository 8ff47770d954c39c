"""Who holds which blocks: event streams into claims, and claims into matches."""

from indexer.actions import (
    Apply,
    Forget,
    ForgetReason,
    RecordLoss,
    RequestReplay,
    StreamAction,
)
from indexer.claim_sink import ClaimSink
from indexer.heard_batch import HeardBatch
from indexer.intake import Intake, IntakeCounters
from indexer.source_feed import SourceCounters, SourceFeed
from indexer.source_sockets import SocketLimits
from indexer.stream import EventStream, ReplayEnding
from indexer.stream_limits import StreamLimits
from indexer.stream_status import ResetCause, StreamCounters, StreamStatus
from indexer.subscriber import EventSubscriber, SubscriberCounters
from indexer.trust import Trust

__all__ = [
    "Apply",
    "ClaimSink",
    "EventStream",
    "EventSubscriber",
    "Forget",
    "ForgetReason",
    "HeardBatch",
    "Intake",
    "IntakeCounters",
    "RecordLoss",
    "ReplayEnding",
    "RequestReplay",
    "ResetCause",
    "SocketLimits",
    "SourceCounters",
    "SourceFeed",
    "StreamAction",
    "StreamCounters",
    "StreamLimits",
    "StreamStatus",
    "SubscriberCounters",
    "Trust",
]
