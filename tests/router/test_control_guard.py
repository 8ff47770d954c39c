"""Who may use the control port."""

import pytest

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
