from math import isnan

import pytest

from benchmarks.dataplane_rows import BARE, FULL, KINDS, TARGETS, Found, chunk_us, table

LOADS = ("2k", "32k", "200k", "200k_first", "one", "many", "p50", "p99")


def found(**milliseconds: float) -> Found:
    """Every proxy at 1.0 under every load, but those that are named, at so much."""
    result = Found()
    for name in (*FULL, "bare"):
        for load in LOADS:
            result.add(name, load, milliseconds.get(name, 1.0))
    for load in ("200k_notok", "notok_2k"):
        result.add("kvroute", load, 1.0)
    result.add("kvroute_hf", "2k", 4.0)
    return result


def test_every_row_that_was_promised_is_there_once() -> None:
    names = [row.name for row in table(found())]
    promised = {f"{name}_{kind.suffix}" for name in FULL for kind in KINDS}
    promised |= {f"bare_{suffix}" for suffix in BARE}
    promised |= {"kvroute_200k_notok_ms", "kvroute_notok_2k_ms", "kvroute_hf_2k_ms"}
    assert set(names) == promised
    assert len(names) == len(promised)


def test_a_row_of_the_router_stands_beside_baseline_and_peers() -> None:
    rows = {row.name: row for row in table(found(kvroute=3.0, bare=2.0))}
    row = rows["kvroute_2k_ms"]
    assert (row.peer, row.ratio) == ("bare_2k_ms", 1.5)
    assert row.more_ratios == (("smg_2k_ms", 3.0), ("envoy_2k_ms", 3.0))
    assert rows["kvroute_200k_notok_ms"].peer == "smg_200k_ms"
    assert rows["smg_2k_ms"].ratio is None


def test_what_a_proxy_adds_is_its_wait_less_the_direct_one() -> None:
    rows = {row.name: row for row in table(found(kvroute=3.0))}
    assert rows["direct_added_p50_ms"].value == 1.0
    assert rows["kvroute_added_p50_ms"].value == 2.0
    assert rows["smg_added_p99_ms"].value == 0.0
    assert rows["kvroute_added_p50_ms"].ratio is None, "no ratio to a peer that adds nothing"


def test_an_event_costs_what_the_events_beyond_the_first_cost() -> None:
    assert chunk_us([1.0], [1.0 + 299 * 0.01]) == [pytest.approx(10.0)]


@pytest.mark.parametrize(
    ("spent_ms", "is_met"), [(1.25, True), (1.26, False)], ids=["at the bound", "above it"]
)
def test_a_target_set_by_a_peer_follows_it(spent_ms: float, is_met: bool) -> None:
    rows = {row.name: row for row in table(found(kvroute=spent_ms))}
    assert rows["kvroute_2k_ms"].target == 1.25
    assert rows["kvroute_2k_ms"].is_met is is_met
    assert not any(row.is_beyond for row in rows.values()), "a missed target is no fault"


def test_every_target_is_of_a_row_and_set_by_a_row() -> None:
    names = {row.name for row in table(found())}
    assert {target.row for target in TARGETS} <= names
    assert {target.peer for target in TARGETS} - {None} <= names


def test_a_lost_peer_has_rows_with_the_reason_and_sets_no_target() -> None:
    without = found()
    without.lost["smg"] = "no wheel for this machine"
    rows = {row.name: row for row in table(without)}
    row = rows["smg_32k_ms"]
    assert isnan(row.value)
    assert row.remark == "not available: no wheel for this machine"
    assert rows["kvroute_2k_ms"].target is None
    assert [name for name, _ in rows["kvroute_2k_ms"].more_ratios] == ["envoy_2k_ms"]
    assert rows["kvroute_200k_first_ms"].target == 2.5
