"""A live event stream of an engine: heard, narrated, shown and recorded."""

from kvroute.tap.heard import Batch, Heard, Note, NoteKind
from kvroute.tap.listening import ListenError
from kvroute.tap.neighbour import Kind, Neighbour, port_of_router, who_is_at
from kvroute.tap.outlets import JsonLines, Lines, Outlet, is_stdout_gone, leave_stdout
from kvroute.tap.recording import Recording, Recordings
from kvroute.tap.summary import Summary
from kvroute.tap.tapping import TapBounds, Tapping
from kvroute.tap.target import (
    REPLAY_OF_ENGINE,
    SilentWorkerError,
    TargetError,
    endpoint_source,
    require_replay,
    worker_entry,
    worker_sources,
)

__all__ = [
    "REPLAY_OF_ENGINE",
    "Batch",
    "Heard",
    "JsonLines",
    "Kind",
    "Lines",
    "ListenError",
    "Neighbour",
    "Note",
    "NoteKind",
    "Outlet",
    "Recording",
    "Recordings",
    "SilentWorkerError",
    "Summary",
    "TapBounds",
    "Tapping",
    "TargetError",
    "endpoint_source",
    "is_stdout_gone",
    "leave_stdout",
    "port_of_router",
    "require_replay",
    "who_is_at",
    "worker_entry",
    "worker_sources",
]
