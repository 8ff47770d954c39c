"""Answers in JSON."""

from http import HTTPStatus

import orjson
from starlette.responses import Response


def json_response(content: object, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """A JSON answer."""
    return Response(orjson.dumps(content), status.value, media_type="application/json")
