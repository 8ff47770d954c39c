"""SGLang's event endpoints: as ``/server_info`` tells them, or else as its flag was written.

Releases that do not tell ``kv_events`` still list their flags, ``kv_events_config`` among them: a JSON text, or
the object that it stands for.

Source: SGLang 0.5.23 ``--kv-events-config`` and its defaults.
"""

import json
import re
from collections.abc import Mapping

from router.answer_fields import AnswerFields, fields_of

ENDPOINT = re.compile(r"tcp://([^/]*):([0-9]{1,5})")
_DEFAULT_ENDPOINT = "tcp://*:5557"
_NAME = "kv_events_config"


def event_fields(info: Mapping[str, object], read: AnswerFields) -> Mapping[str, object]:
    """Fields of ``kv_events``, wherever they come from; none for an engine without events.

    Args:
        info: ``/server_info``.
    """
    told = info.get("kv_events")
    if isinstance(told, dict):
        return fields_of(told)
    config = _parsed(info.get(_NAME), read)
    if config.get("publisher") != "zmq":
        return {}
    base = _port_base(config.get("endpoint", _DEFAULT_ENDPOINT), read)
    if base is None:
        return {}
    fields: dict[str, object] = {
        "endpoint_host": base[0],
        "endpoint_port_base": base[1],
        "topic": config.get("topic"),
    }
    if config.get("replay_endpoint") is not None:
        replay = _port_base(config["replay_endpoint"], read)
        fields["replay_endpoint_port_base"] = replay and replay[1]
    return fields


def _parsed(value: object, read: AnswerFields) -> Mapping[str, object]:
    if not isinstance(value, str) or not value:
        return fields_of(value)
    try:
        return fields_of(json.loads(value))
    except (ValueError, RecursionError):
        read.fault(f"{_NAME}: not JSON")
        return {}


def _port_base(endpoint: object, read: AnswerFields) -> tuple[str, int] | None:
    found = ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
    if found is None:
        read.fault(f"{_NAME}: an endpoint that is not tcp://host:port")
        return None
    return found[1], int(found[2])
