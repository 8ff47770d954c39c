"""``kvroute demo`` with real processes, smaller than by default."""

import json

import pytest

from tests.kvroute.command import kvroute

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SHORT = ("--requests", "100", "--duration-s", "2", "--think-s", "0.2")
FIELDS = {
    "requests",
    "errors",
    "cached_token_share",
    "gpu_blocks",
    "host_pinned_blocks",
    "storage_blocks",
    "ttft_ms",
}


async def test_cost_reuses_more_than_round_robin() -> None:
    ended = await kvroute("demo", *SHORT, "--json", "-", timeout_s=110.0)
    assert ended.code == 0, ended.stderr
    told = json.loads(ended.stdout)
    policies = told["policies"]
    assert set(told) == {"policies"}
    assert set(policies) == {"round_robin", "cost"}
    for result in policies.values():
        assert result.keys() >= FIELDS
        assert result["ttft_ms"].keys() >= {"p50", "p99"}
        assert (result["requests"], result["errors"], result["decisions"]) == (100, 0, 100)
        assert 0 < result["ttft_ms"]["p50"] <= result["ttft_ms"]["p99"]
    cost, round_robin = policies["cost"], policies["round_robin"]
    assert cost["cached_token_share"] > round_robin["cached_token_share"] + 0.05
    assert cost["gpu_blocks"] > 0
    assert cost["host_pinned_blocks"] + round_robin["host_pinned_blocks"] > 0
    assert "blocks found on host (L2)" in ended.stderr
