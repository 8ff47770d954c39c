"""Who may use the control port."""

from collections.abc import AsyncIterator

import pytest

from router.control_guard import MAX_CHANGE_BYTES, Intruder
from tests.router.brains import fleet
from tests.router.control_port import control


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8081", None, 200),
        ("127.0.0.1:8081", None, 200),
        ("[::1]:8081", None, 200),
        ("router.localhost", None, 200),
        ("10.0.0.1:8081", None, 200),
        ("localhost:8081", "http://localhost:8081", 200),
        ("localhost:8081", "https://localhost:8081", 200),
        ("localhost:8081", "http://localhost:3000", 403),
        ("localhost:8081", "https://evil.example", 403),
        ("localhost:8081", "null", 403),
        ("evil.example:8081", None, 403),
        ("evil.example:8081", "http://evil.example:8081", 403),
        ("localhost.evil.example", None, 403),
        ("127.0.0.1.evil.example", None, 403),
        ("[::1", None, 403),
    ],
)
async def test_without_a_token_no_page_of_another_origin_gets_through(
    host: str, origin: str | None, status: int
) -> None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    with fleet() as one:
        async with control(one) as (client, _):
            assert (await client.get("/workers", headers=headers)).status_code == status
            added = await client.post("/workers", json={"url": "http://w9"}, headers=headers)
            assert added.status_code == (201 if status == 200 else 403)
            assert (await client.get("/health", headers=headers)).status_code == 200
        async with control(one, token="t0ken") as (client, _):
            known = headers | {"authorization": "Bearer t0ken"}
            assert (await client.get("/workers", headers=known)).status_code == 200
            assert (await client.get("/workers", headers=headers)).status_code == 401


@pytest.mark.parametrize(
    ("site", "status"),
    [("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403)],
)
async def test_nor_one_whose_browser_names_no_origin(site: str, status: int) -> None:
    """An image, a link or a frame: browsers send no origin with it, but say where it comes from."""
    with fleet() as one:
        async with control(one) as (client, _):
            answer = await client.get("/workers", headers={"sec-fetch-site": site})
            assert answer.status_code == status


async def test_nothing_of_a_stranger_is_read() -> None:
    """Neither is a body taken in, nor told what routes there are."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 65536
            yield b" " * 65536

    with fleet() as one:
        async with control(one, token="t0ken") as (client, _):
            for method, path in (
                ("POST", "/workers"),
                ("POST", "/query"),
                ("PUT", "/workers"),
                ("GET", "/nowhere"),
                ("GET", "/openapi.json"),
                ("GET", "/workers/%2e%2e/health"),
                ("GET", "/health/"),
                ("GET", "//health"),
            ):
                answer = await client.request(method, path, content=endless())
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert "token is missing" in answer.json()["detail"]
            assert taken <= 8 * (MAX_CHANGE_BYTES + 2 * 65536)


@pytest.mark.parametrize("given", ["", "t0ken", "Bearer", "Bearer ", "bearer t0ken", "Bearer t0ken ", "Bearer t0ke", "Bearer t0kenn", "Basic t0ken", "Bearer \xff"])  # fmt: skip
async def test_the_token_is_exact(given: str) -> None:
    with fleet() as one:
        async with control(one, token="t0ken") as (client, _):
            headers = {b"authorization": given.encode("latin-1")}
            assert (await client.get("/workers", headers=headers)).status_code == 401
            known = {"authorization": "Bearer t0ken"}
            metrics = (await client.get("/metrics", headers=known)).text
            assert 'kvroute_control_refused_total{reason="token"} 1.0' in metrics
            assert "t0ken" not in metrics


async def test_a_change_of_workers_is_short() -> None:
    body = b'{"url":"http://w9","name":"' + b"x" * MAX_CHANGE_BYTES + b'"}'
    with fleet() as one:
        one.learn("w0")
        async with control(one, max_body_bytes=1 << 30) as (client, _):
            headers = {"content-type": "application/json"}
            added = await client.post("/workers", content=body, headers=headers)
            changed = await client.patch("/workers/w0", content=body, headers=headers)
            assert (added.status_code, changed.status_code) == (413, 413)


async def test_who_is_refused_is_counted_by_why() -> None:
    with fleet() as one:
        async with control(one) as (client, _):
            await client.get("/workers", headers={"host": "evil.example"})
            await client.get("/workers", headers={"origin": "https://evil.example"})
            await client.get("/workers", headers={"sec-fetch-site": "cross-site"})
            metrics = (await client.get("/metrics")).text
    for why, count in ((Intruder.NAME, 1), (Intruder.PAGE, 2), (Intruder.TOKEN, 0)):
        assert f'kvroute_control_refused_total{{reason="{why.value}"}} {count}.0' in metrics
