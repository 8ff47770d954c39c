"""Bounds and times of the configuration, as each part of the router takes them."""

from router.breaker import BreakerLimits
from router.config import RouterConfig
from router.connections import ConnectionLimits
from router.data_app import DataLimits
from router.file_limit import connections_within
from router.probe import ProbeTimeouts
from router.reach import Reach
from router.registry import RegistryLimits
from router.upstream import UpstreamTimeouts


def probe_timeouts(config: RouterConfig) -> ProbeTimeouts:
    """Of the router's own calls."""
    return ProbeTimeouts(config.timeouts.probe_s, config.health.timeout_s)


def registry_limits(config: RouterConfig) -> RegistryLimits:
    """Of the registry."""
    breaker = config.breaker
    return RegistryLimits(
        max_workers=config.limits.max_workers,
        min_ready=config.ready.min_workers,
        recovery_s=config.ready.recovery_s,
        health_threshold=config.health.failure_threshold,
        breaker=BreakerLimits(breaker.num_faults, breaker.cool_down_s, breaker.max_cool_down_s),
    )


def connection_limits(config: RouterConfig, num_files: int) -> ConnectionLimits:
    """Of each port; ``num_files`` may be open."""
    timeouts = config.timeouts
    return ConnectionLimits(
        max_connections=connections_within(num_files, config.limits.max_connections),
        head_s=timeouts.client_head_s,
        body_s=timeouts.client_body_s,
        read_s=timeouts.client_read_s,
        keep_alive_s=timeouts.keep_alive_s,
    )


def data_limits(config: RouterConfig) -> DataLimits:
    """Of requests to the data port."""
    limits = config.limits
    return DataLimits(limits.max_body_bytes, limits.max_in_flight, limits.max_held_bytes)


def upstream_timeouts(config: RouterConfig) -> UpstreamTimeouts:
    """Of requests to workers."""
    timeouts = config.timeouts
    return UpstreamTimeouts(timeouts.connect_s, timeouts.first_byte_s, timeouts.idle_s)


def reach(config: RouterConfig) -> Reach:
    """Where the router may be sent, beside what the configuration names."""
    named = [one for entry in config.workers for one in entry.connected_to()]
    if config.events is not None:
        named += [config.events.endpoint, config.events.replay_endpoint]
    for source in config.storage.sources().values():
        named += [source.endpoint, source.replay_endpoint]
    return Reach(config.reach, [one for one in named if one is not None])
