"""A live fleet, looked at from outside: what is wrong, and the flag of the engine to change."""

from kvroute.doctor.check import Check, CheckName, Status
from kvroute.doctor.ear import EarTimes
from kvroute.doctor.report import Examination, Report
from kvroute.doctor.rounds import Keys, RoundOptions, examine
from kvroute.doctor.table import tables
from kvroute.doctor.visit import VisitOptions

__all__ = [
    "Check",
    "CheckName",
    "EarTimes",
    "Examination",
    "Keys",
    "Report",
    "RoundOptions",
    "Status",
    "VisitOptions",
    "examine",
    "tables",
]
