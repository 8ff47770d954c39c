"""The few routes that the data port answers itself: its health, its readiness, and the fleet's models.

``OPTIONS`` on them is forwarded like everything else: what browsers may do is the worker's to say.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from protocol import WorkerSpec
from router.errors import ErrorKind, FrontDoorError
from router.headers import RawHeader

_MODELS = "/v1/models"


@dataclass(frozen=True, slots=True)
class Readiness:
    """May load balancers send requests here? ``detail`` says what is still awaited."""

    is_ready: bool
    detail: str


class Fleet(Protocol):
    """What the data port knows of the fleet."""

    def specs(self) -> Sequence[WorkerSpec]:
        """Every worker that has been learned."""

    def readiness(self) -> Readiness:
        """For ``/ready``."""

    def is_settled(self) -> bool:
        """Has every worker been learned, or been given up on, so that an unknown model is unknown?"""

    def model_cards(self) -> Sequence[Mapping[str, object]]:
        """Entries of ``/v1/models``, merged over the workers."""


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """A whole answer; ``refused_as`` where it is none that was asked for."""

    status: int
    headers: Sequence[RawHeader]
    body: bytes
    refused_as: ErrorKind | None = None


def own_answer(
    method: str, path: str, fleet: Fleet, models: Collection[str] | None = None
) -> OwnAnswer | None:
    """Answer a route that ends here; None for what is to be forwarded.

    Args:
        models: that are shown; None for all.
    """
    route = path.removesuffix("/")
    is_own = route in ("/health", "/ready", _MODELS) or route.startswith(f"{_MODELS}/")
    if not is_own or method == "OPTIONS":
        return None
    if method not in ("GET", "HEAD"):
        error = FrontDoorError(ErrorKind.METHOD_NOT_ALLOWED, f"{route} is read with GET")
        return _refusal(error, (b"allow", b"GET, HEAD, OPTIONS"))
    if route == "/health":
        return _json(200, {"status": "ok"})
    if route == "/ready":
        return _ready(fleet.readiness())
    cards = fleet.model_cards()
    if models is not None:
        cards = [card for card in cards if card.get("id") in models]
    return _models(route.removeprefix(_MODELS).removeprefix("/"), cards, fleet)


def _ready(readiness: Readiness) -> OwnAnswer:
    if readiness.is_ready:
        return _json(200, {"status": "ready", "detail": readiness.detail})
    waiting = {"status": "not_ready", "detail": readiness.detail}
    return _json(503, waiting, (b"retry-after", b"1"))


def _models(name: str, cards: Sequence[Mapping[str, object]], fleet: Fleet) -> OwnAnswer:
    """All models, or the one of this name (which may hold slashes); what there is none of yet may still come."""
    if not name and (cards or fleet.is_settled()):
        return _json(200, {"object": "list", "data": list(cards)})
    for card in cards:
        if card.get("id") == name:
            return _json(200, card)
    if not fleet.is_settled():
        return _refusal(FrontDoorError(ErrorKind.NO_WORKER, "not every worker was reached yet"))
    message = f"no worker serves the model {name!r}"
    return _refusal(FrontDoorError(ErrorKind.MODEL_NOT_FOUND, message, param="model"))


def _json(status: int, body: Mapping[str, object], *more: RawHeader) -> OwnAnswer:
    data = orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE)
    length = (b"content-length", b"%d" % len(data))
    return OwnAnswer(status, [(b"content-type", b"application/json"), length, *more], data)


def _refusal(error: FrontDoorError, *more: RawHeader) -> OwnAnswer:
    return OwnAnswer(error.status, [*error.headers(), *more], error.body(), error.kind)
