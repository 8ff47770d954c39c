"""Faults that a client hears of: one table from exception to status and OpenAI error body."""

from collections.abc import Mapping
from http import HTTPStatus

import orjson

from prompt import MalformedRequestError, NoTokensError
from worker.engine_settings import QueueFullError, RequestTooLargeError

RETRY_AFTER_S = 1

CallerFault = MalformedRequestError | NoTokensError | QueueFullError | RequestTooLargeError
CALLER_FAULTS = (MalformedRequestError, NoTokensError, QueueFullError, RequestTooLargeError)


class ApiError(Exception):
    """An answer other than 200.

    Args:
        param: the field at fault; None where it is no single one.
    """

    def __init__(self, status: HTTPStatus, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message.encode("utf-8", "replace").decode()
        self.param = param

    def headers(self) -> Mapping[str, str]:
        """Headers that tell a client when to come back."""
        if self.status is HTTPStatus.SERVICE_UNAVAILABLE:
            return {"retry-after": str(RETRY_AFTER_S)}
        return {}

    def body(self) -> bytes:
        """The OpenAI error object."""
        error = {
            "message": self.message,
            "type": f"{self.status.phrase.replace(' ', '')}Error",
            "param": self.param,
            "code": self.status.value,
        }
        return orjson.dumps({"error": error})


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The request is at fault."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, param)


def api_error(fault: CallerFault) -> ApiError:
    """What a client hears of a fault found further in."""
    match fault:
        case NoTokensError():
            return bad_request(fault.detail)
        case QueueFullError():
            return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, f"The request queue is full: {fault}.")
        case _:
            return bad_request(str(fault))
