"""The control port does what its own description says, whatever it is asked."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import httpx
import pytest
from hypothesis import given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    negative_data_rejection,
    not_a_server_error,
    positive_data_acceptance,
)
from schemathesis.openapi import from_dict
from schemathesis.schemas import BaseSchema

from router.reach import Reach, ReachConfig
from router.registry import RegistryLimits
from tests.router.brains import fleet
from tests.router.control_port import control_application

AnyCase: TypeAlias = Case[Any]
TOKEN = "t0ken"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}
NUM_EXAMPLES = 15
GOOD = [
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/workers"),
    ("POST", "/workers"),
    ("PATCH", "/workers/{worker}"),
    ("DELETE", "/workers/{worker}"),
    ("GET", "/metrics"),
    ("GET", "/debug/workers"),
    ("GET", "/debug/findings"),
    ("GET", "/debug/index"),
    ("GET", "/debug/index/dump"),
    ("GET", "/debug/decisions"),
    ("GET", "/debug/decisions/{request_id}"),
    ("POST", "/debug/route"),
    ("POST", "/query"),
    ("POST", "/query_by_hash"),
]
# Where something can be wrong: a path and nothing else cannot be. A query may say more than is read.
BAD = [(method, path) for method, path in GOOD if method in ("POST", "PATCH")]
BAD += [("GET", "/debug/decisions"), ("GET", "/debug/index/dump")]
# What a description cannot say of a text or a number, such as which hosts may be reached, is refused still.
SAYS_NOT_ALL = [positive_data_acceptance]


@contextmanager
def described() -> Iterator[BaseSchema]:
    """What the control port says of itself, beside a fleet of two workers that have been asked for."""
    with fleet(RegistryLimits(max_workers=8)) as one:
        one.learn("w0")
        one.learn("w1")
        one.plan()
        reach = Reach(ReachConfig())
        with control_application(one, TOKEN, reach=reach) as (app, _):

            async def description() -> dict[str, Any]:
                transport = httpx.ASGITransport(app)
                async with httpx.AsyncClient(
                    transport=transport, base_url="http://localhost"
                ) as client:
                    told = await client.get("/openapi.json", headers=KNOWN)
                    return dict(told.json())

            schema = from_dict(asyncio.run(description()))
            schema.app = app
            yield schema


def validated(method: str, path: str, mode: GenerationMode, headers: dict[str, str]) -> None:
    """Call the route again and again, and compare each answer with the description."""
    excluded = list(SAYS_NOT_ALL)
    excluded += [not_a_server_error] if path == "/ready" else []
    excluded += [negative_data_rejection] if method == "GET" else []
    with described() as schema:

        @given(case=schema[path][method].as_strategy(generation_mode=mode))
        @settings(max_examples=NUM_EXAMPLES, deadline=None, derandomize=True)
        def check(case: AnyCase) -> None:
            case.call_and_validate(headers=headers, excluded_checks=excluded)

        check()


def test_every_route_is_asked() -> None:
    with described() as schema:
        paths = schema.raw_schema["paths"]
        assert {(method.upper(), path) for path, one in paths.items() for method in one} == set(
            GOOD
        )


@pytest.mark.parametrize(("method", "path"), GOOD)
def test_good_calls_are_answered_as_described(method: str, path: str) -> None:
    validated(method, path, GenerationMode.POSITIVE, KNOWN)


@pytest.mark.parametrize(("method", "path"), BAD)
def test_bad_calls_are_refused_as_described(method: str, path: str) -> None:
    validated(method, path, GenerationMode.NEGATIVE, KNOWN)


@pytest.mark.parametrize(("method", "path"), GOOD)
def test_calls_without_the_token_are_refused_as_described(method: str, path: str) -> None:
    with described() as schema:

        @given(case=schema[path][method].as_strategy())
        @settings(max_examples=2, deadline=None, derandomize=True)
        def check(case: AnyCase) -> None:
            response = case.call_and_validate(excluded_checks=[*SAYS_NOT_ALL, not_a_server_error])
            is_probe = path in ("/health", "/ready")
            assert (response.status_code == 401) is not is_probe

        check()
