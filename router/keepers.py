"""Which worker must serve a request, for it keeps in its memory what the request is about.

    POST /v1/responses                            ─▶ any worker; the answer's id is remembered as its maker's
    GET /v1/responses/resp_1, …/cancel            ─▶ the maker of resp_1
    POST /v1/responses {previous_response_id: …}  ─▶ the maker of that response, which holds the history
    POST /open_session, /generate {session_params: {id: …}}  ─▶ likewise, for SGLang's sessions

An id that is not known goes to any worker, as if it were none: where there is one worker only, that is the right
one. A maker that was removed has taken along what it kept.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from prompt import RequestView
from protocol import WorkerId
from router.errors import ErrorKind, FrontDoorError
from router.made_ids import MadeIds
from scoring import PlanRequest

_COLLECTIONS = frozenset(
    {
        "/v1/responses",
        "/v1/conversations",
        "/v1/files",
        "/v1/uploads",
        "/v1/batches",
        "/v1/videos",
    }
)
"""A POST to one of these makes something that has an id, which stands in paths below it."""
_MAKING = _COLLECTIONS | {"/open_session"}
_PREFIXES = tuple(f"{collection}/" for collection in _COLLECTIONS)
_REFERENCES = ("previous_response_id", "conversation", "input_file_id", "file_id")
"""Fields of bodies that name what an engine keeps, the first that is known counts."""
SESSION = "session_params"
"""Of any body that an SGLang computes, where it goes on in a session."""
_OTHER_REFERENCES = {"/close_session": ("session_id",)}


class ServedNames(Protocol):
    """Knows what each worker serves."""

    def served_by(self, worker: WorkerId) -> Collection[str] | None:
        """Names of models that it serves, none where it was never reached; None where it is not listed."""


class Keepers:
    """Finds the one worker that can serve a request.

    Attributes:
        made: ids and who made them.
    """

    def __init__(self, made: MadeIds, served: ServedNames) -> None:
        self.made = made
        self._served = served

    def made_by(self, method: str, path: str) -> MadeIds | None:
        """Where the id that the answer gives belongs; None where the request makes nothing that is kept."""
        is_making = method == "POST" and path.removesuffix("/") in _MAKING
        return self.made if is_making else None

    def bound(
        self, plan: PlanRequest, path: str, view: RequestView | None, now: float
    ) -> PlanRequest:
        """The question to the brain, for the keeper alone if there is one.

        Raises:
            FrontDoorError: the keeper is gone, or does not serve the model.
        """
        for made_id, param in _named(path, view):
            worker = self.made.maker(made_id, now)
            if worker is not None:
                self._refuse_elsewhere(made_id, param, worker, plan.model)
                return plan._replace(keeper=worker)
        return plan

    def _refuse_elsewhere(
        self, made_id: str, param: str | None, worker: WorkerId, model: str | None
    ) -> None:
        names = self._served.served_by(worker)
        if names is None:
            message = f"the worker that kept {made_id!r} is gone"
            raise FrontDoorError(ErrorKind.NOT_FOUND, message, param)
        if model is not None and names and model not in names:
            message = f"the worker that keeps {made_id!r} does not serve the model {model!r}"
            raise FrontDoorError(ErrorKind.MODEL_NOT_FOUND, message, "model")


def _named(path: str, view: RequestView | None) -> list[tuple[str, str | None]]:
    """Every id that the request names, and the field that does."""
    found: list[tuple[str, str | None]] = []
    if path.startswith(_PREFIXES):
        found.append((path.split("/", 4)[3], None))
    if view is not None:
        named = ((_id_of(view.body.get(field)), field) for field in _references(path))
        found += [(made_id, field) for made_id, field in named if made_id is not None]
    return found


def _references(path: str) -> Iterable[str]:
    route = path.removesuffix("/")
    if route in _COLLECTIONS or route.startswith(_PREFIXES):
        return _REFERENCES
    return _OTHER_REFERENCES.get(route, (SESSION,))


def _id_of(value: object) -> str | None:
    """An id as it stands, or of an object that has one."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) and value else None
