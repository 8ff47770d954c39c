"""Metrics of the ports: connections, certificates, who was kept out, and where the router was not to be sent."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric

from router.connections import ConnectionGuard
from router.control_guard import Intruder
from router.file_watch import Reload
from router.metric_families import by_one, counter, gauges
from router.reach import Reach, Told
from router.server_certificate import ServerCertificate


def port_metrics(
    guards: Mapping[str, ConnectionGuard],
    certificates: Mapping[str, ServerCertificate],
    intruders: Counter[Intruder],
) -> Iterator[Metric]:
    """By the ports' names."""
    is_open = [((port,), guard.num_open) for port, guard in guards.items()]
    yield gauges("connections_open", "Connections of clients.", ("port",), is_open)
    shaking = [((port,), guard.num_shaking) for port, guard in guards.items()]
    yield gauges("handshakes", "Handshakes of TLS that are under way.", ("port",), shaking)
    ended = [
        ((port, str(why)), count)
        for port, guard in guards.items()
        for why, count in guard.ended.items()
    ]
    reloads = [
        ((port, str(how)), one.reloads[how]) for port, one in certificates.items() for how in Reload
    ]
    text = "Certificates of ports that were read again."
    yield counter("certificate_reloads", text, ("port", "outcome"), reloads)
    yield counter("connections_ended", "Connections that were given up.", ("port", "reason"), ended)
    refused = {why.value: intruders[why] for why in Intruder}
    text = "Calls of the control port that were refused, by what they lack or come from."
    yield counter("control_refused", text, ("reason",), by_one(refused))


def reach_metric(reach: Reach | None) -> Metric:
    """Without samples where nothing is refused."""
    refused = {} if reach is None else {told.value: reach.refusals[told] for told in Told}
    text = "Hosts that may not be reached, by who named them."
    return counter("reach_refused", text, ("told_by",), by_one(refused))
