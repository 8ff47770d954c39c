"""``kvroute scenario refill`` with real processes, smaller than by default."""

import json

import pytest

from tests.kvroute.command import kvroute

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SMALL = ("--workers", "4", "--prefixes", "32", "--host-prefixes", "16", "--gpu-prefixes", "2", "--decisions", "64")  # fmt: skip


async def test_announced_refills_are_known_and_muted_ones_are_named() -> None:
    ended = await kvroute("scenario", "refill", *SMALL, "--json", "-", timeout_s=110.0)
    assert ended.code == 0, ended.stderr
    runs = json.loads(ended.stdout)
    announced, muted = runs["announced"], runs["muted"]
    for result in (announced, muted):
        assert result["decisions"] == 64
        assert result["truth_host_only"] >= 60
        assert result["tokens_refilled"] > 0
        assert result["ttft_ms"]["p50"] > 0
        assert result["host_tokens_evicted"] >= 4 * 16 * 22 * 64
        assert result["host_copies_left"] == 0
    assert announced["mismatches"] == announced["mismatches_afterwards"] == 0
    assert announced["findings"] == []
    assert announced["removes_of_unknown"] == 0
    assert announced["decisions_with_host_pinned"] >= announced["truth_host_only"]
    assert muted["decisions_with_host_pinned"] == 0
    assert muted["removes_of_unknown"] > 0
    assert muted["first_findings"]["host_stores_unannounced"] <= 50
    (finding,) = muted["findings"]
    assert finding["kind"] == "host_stores_unannounced"
    assert finding["evidence"]
    assert finding["ranks"]
    assert "removals of unannounced blocks" in ended.stderr
