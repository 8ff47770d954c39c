"""Metrics of clients' keys: what each was let do, by its name, and what came without one."""

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import Metric

from router.client_keys import ClientKey, ClientKeys, KeyOutcome, Stranger
from router.file_watch import Reload
from router.key_file import KeyFile
from router.metric_families import by_one, counter, gauges


def key_metrics(keys: ClientKeys | None, file: KeyFile | None = None) -> Iterator[Metric]:
    """Families without samples where keys are not asked for, or not of a file."""
    known: Sequence[ClientKey] = () if keys is None else list(keys)
    outcomes = [
        ((key.name, outcome.value), key.outcomes[outcome])
        for key in known
        for outcome in KeyOutcome
    ]
    text = (
        "Requests with a key that is known; an admitted one may be forbidden yet, once it is read."
    )
    yield counter("key_requests", text, ("key", "outcome"), outcomes)
    in_flight = [((key.name,), key.in_flight) for key in known]
    yield gauges("key_requests_in_flight", "Requests being served.", ("key",), in_flight)
    strangers = {} if keys is None else {why.value: keys.strangers[why] for why in Stranger}
    text = "Requests refused for want of a key: 401."
    yield counter("unauthorized", text, ("reason",), by_one(strangers))
    reloads = {} if file is None else {how.value: file.reloads[how] for how in Reload}
    text = "Files of keys that were read again."
    yield counter("key_reloads", text, ("outcome",), by_one(reloads))
