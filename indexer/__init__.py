"""Who holds which blocks: event streams into claims, and claims into matches."""

from indexer.actions import (
    Apply,
    Forget,
    ForgetReason,
    LossCause,
    RecordLoss,
    RequestReplay,
    StreamAction,
)
from indexer.backlog import Backlog
from indexer.claim_sink import ClaimSink
from indexer.event_traffic import EventTraffic
from indexer.findings import Finding, FindingKind
from indexer.fleet_index import FleetIndex
from indexer.heard_batch import HeardBatch
from indexer.identity import ClaimSkip
from indexer.intake import Intake
from indexer.limits import IndexLimits
from indexer.match import Prompt, RankMatch
from indexer.rank_state import IndexStats, RankState
from indexer.replay_ending import ReplayEnding
from indexer.socket_limits import SocketLimits
from indexer.source_counters import SourceCounters
from indexer.source_feed import SourceFeed
from indexer.stream import EventStream
from indexer.stream_limits import StreamLimits
from indexer.stream_status import ResetCause, StreamCounters, StreamStatus
from indexer.subscriber import EventSubscriber, SubscriberCounters
from indexer.trust import Trust

__all__ = [
    "Apply",
    "Backlog",
    "ClaimSink",
    "ClaimSkip",
    "EventStream",
    "EventSubscriber",
    "EventTraffic",
    "Finding",
    "FindingKind",
    "FleetIndex",
    "Forget",
    "ForgetReason",
    "HeardBatch",
    "IndexLimits",
    "IndexStats",
    "Intake",
    "LossCause",
    "Prompt",
    "RankMatch",
    "RankState",
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
