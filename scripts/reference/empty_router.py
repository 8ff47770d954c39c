"""A router without workers, sockets or tasks: what its pages are described from."""

import time
from random import Random

from indexer.fleet_index import FleetIndex
from indexer.intake import Intake
from indexer.subscriber import EventSubscriber
from prompt import TableLimits, TokenMemo
from router.counters import DataCounters
from router.metrics import MetricSources
from router.registry import Brains, Registry, RegistryLimits
from router.shelf import PromptShelf
from router.ticker import Ticker
from scoring import Planner, PolicyName


def empty_router() -> MetricSources:
    """The parts that count."""
    index = FleetIndex()
    intake = Intake(index)
    planner = Planner(index, policy=PolicyName.COST, rng=Random(0))
    subscriber = EventSubscriber(intake, time.monotonic)
    brains = Brains(index, planner, intake, subscriber, PromptShelf({}))
    registry = Registry(brains, RegistryLimits())
    memo = TokenMemo(TableLimits())
    return MetricSources(
        DataCounters(), planner, index, intake, subscriber, registry, Ticker({}), memo=memo
    )
