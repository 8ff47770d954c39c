"""Traces, synthetic workloads, HTTP replay, reports, and fleets of real processes on this machine."""

from loadgen.answer import Answer, ErrorKind, Usage
from loadgen.comparison import ComparisonSpec, PolicyRun, compare, comparison_table, verdict
from loadgen.control_port import (
    CandidateView,
    ControlPort,
    ControlPortError,
    DecisionView,
    FindingView,
    RankNameView,
)
from loadgen.fleet import Fleet, FleetSpec, free_ports, start_fleet
from loadgen.process import Child, ChildError
from loadgen.replay import ReplayOptions, replay, send
from loadgen.report import (
    LoadReport,
    Percentiles,
    error_lines,
    load_table,
    percentile,
    percentiles,
    run_table,
    summarise,
)
from loadgen.spec_error import SpecError
from loadgen.synthesis import BlockSynthesis
from loadgen.timed_request import PromptForm, TimedRequest, chat, completion, generate
from loadgen.trace import (
    ChatRecord,
    LineFault,
    OnBadLine,
    Trace,
    TraceError,
    TraceRecord,
    load_trace,
    read_trace,
)
from loadgen.trace_requests import TraceRequests
from loadgen.vocabulary import SynthesisError, Vocabulary
from loadgen.workload import Arrivals, WorkloadSpec, synthesise

__all__ = [
    "Answer",
    "Arrivals",
    "BlockSynthesis",
    "CandidateView",
    "ChatRecord",
    "Child",
    "ChildError",
    "ComparisonSpec",
    "ControlPort",
    "ControlPortError",
    "DecisionView",
    "ErrorKind",
    "FindingView",
    "Fleet",
    "FleetSpec",
    "LineFault",
    "LoadReport",
    "OnBadLine",
    "Percentiles",
    "PolicyRun",
    "PromptForm",
    "RankNameView",
    "ReplayOptions",
    "SpecError",
    "SynthesisError",
    "TimedRequest",
    "Trace",
    "TraceError",
    "TraceRecord",
    "TraceRequests",
    "Usage",
    "Vocabulary",
    "WorkloadSpec",
    "chat",
    "compare",
    "comparison_table",
    "completion",
    "error_lines",
    "free_ports",
    "generate",
    "load_table",
    "load_trace",
    "percentile",
    "percentiles",
    "read_trace",
    "replay",
    "run_table",
    "send",
    "start_fleet",
    "summarise",
    "synthesise",
    "verdict",
]
