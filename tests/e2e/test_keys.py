"""Tenants at a real router with simulated engines: keys, caches of their own, and nothing secret in logs."""

import hashlib
import json
from pathlib import Path

import openai
import pytest

from loadgen import FleetSpec, start_fleet

pytestmark = pytest.mark.e2e

SPEC = FleetSpec(2, ("--page-size", "16", "--speed", "50"), ("--log-level", "debug"))
TENANTS = {"a": "salt of tenant a, secret", "b": "salt of tenant b, secret"}
LONG = "the same words again and again " * 20


def keys() -> str:
    return json.dumps(
        [
            {
                "name": name,
                "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest(),
                "cache_salt": salt,
                "sees_scores": True,
            }
            for name, salt in TENANTS.items()
        ]
    )


def logs_in(directory: Path) -> str:
    return "".join(path.read_text() for path in directory.glob("*.log"))


async def test_a_tenant_finds_its_own_prompts_cached_and_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVROUTE_KEYS", keys())
    async with start_fleet(SPEC, tmp_path) as fleet:

        async def cached_and_matched(tenant: str, **more: object) -> tuple[int, int]:
            """What the engine reports as cached, and what the router knew of."""
            async with openai.AsyncOpenAI(
                base_url=f"{fleet.router_url}/v1", api_key=f"key-{tenant}", max_retries=0
            ) as client:
                raw = await client.chat.completions.with_raw_response.create(
                    model="kvroute-sim",
                    messages=[{"role": "user", "content": LONG}],
                    max_tokens=2,
                    extra_body=more,
                )
            usage = raw.parse().usage
            assert usage is not None
            cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
            score = dict(part.split("=") for part in raw.headers["x-kvroute-score"].split(", "))
            return cached or 0, int(score["matched"])

        assert (await cached_and_matched("a"))[0] == 0
        cached, _ = await cached_and_matched("a")
        assert cached > 0
        assert (await cached_and_matched("b")) == (0, 0)
        assert (await cached_and_matched("b", cache_salt="own")) == (0, 0)
        assert (await cached_and_matched("b", cache_salt="own"))[0] == cached
        with pytest.raises(openai.AuthenticationError):
            await cached_and_matched("z")
        async with fleet.session.get(f"{fleet.control_url}/debug/decisions") as answer:
            shown = await answer.text()
        assert {one["client"] for one in json.loads(shown)} == set(TENANTS)
    logs = logs_in(tmp_path)
    assert "data port at" in logs
    for secret in ("key-a", "key-b", "key-z", *TENANTS.values(), LONG):
        assert secret not in logs
        assert secret not in shown
