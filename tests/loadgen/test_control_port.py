"""Reading the router's control port: what is used is validated, what is not is left alone."""

import aiohttp
import pytest
from aiohttp import web

from loadgen import ControlPort, ControlPortError
from tests.loadgen.serving import serving

CANDIDATE = {
    "worker": "w1", "dp_rank": 0, "eligible": True, "excluded_by": None, "trust": "exact",
    "block_size": 16, "gpu_blocks": 3, "host_pinned_blocks": 2, "storage_blocks": 1,
    "predicted_blocks": 0, "observed_blocks": 0, "matched_tokens": 96, "in_flight": 4,
    "queued_prefill_tokens": 512, "terms_ms": {"queue": 1.25}, "cost_ms": 1.25, "more": "fields",
}  # fmt: skip
DECISION = {
    "request_id": "r1", "model": "m", "api": "chat", "policy": "cost", "prompt_tokens": 9,
    "chosen": {"worker": "w2", "dp_rank": 0}, "reason": "lowest_cost",
    "candidates": [CANDIDATE, CANDIDATE | {"worker": "w2", "gpu_blocks": 7}], "timing_us": {},
}  # fmt: skip
ANSWERS: dict[str, object] = {
    "/debug/decisions": [DECISION, DECISION | {"chosen": None}],
    "/debug/decisions/r1": DECISION,
    "/debug/route": DECISION | {"request_id": "dry"},
    "/debug/findings": [
        {"kind": "replay_off", "age_s": 1.0, "ranks": [{"worker": "w1", "dp_rank": 0}],
         "evidence": {"num_ranks": 1}, "advice": "turn it on"},
    ],
    "/debug/workers": [
        {"worker": "w1", "url": "http://w1", "ranks": [
            {"dp_rank": 0, "trust": "exact", "last_seq": 4, "unknown_removals": {"gpu": 2}}]},
    ],
}  # fmt: skip


async def answer(request: web.Request) -> web.StreamResponse:
    if request.path not in ANSWERS:
        return web.json_response({"detail": "no such thing"}, status=404)
    return web.json_response(ANSWERS[request.path])


async def test_decisions_findings_and_workers() -> None:
    async with serving(answer) as url, aiohttp.ClientSession() as session:
        port = ControlPort(url, session)
        first, second = await port.decisions(2)
        assert first == await port.decision("r1")
        assert first.chosen_candidate is not None
        assert first.chosen_candidate.gpu_blocks == 7
        assert second.chosen_candidate is None
        assert (await port.route(b"{}", "chat")).request_id == "dry"
        (finding,) = await port.findings()
        assert (finding.kind, finding.evidence) == ("replay_off", {"num_ranks": 1})
        (worker,) = await port.workers()
        assert worker.ranks[0].unknown_removals == {"gpu": 2}


async def test_what_does_not_answer_well_is_an_error_that_says_how() -> None:
    async def of_another_form(_: web.Request) -> web.StreamResponse:
        return web.json_response([{"worker": "w1", "ranks": [{"dp_rank": 0}]}])

    async with aiohttp.ClientSession() as session:
        async with serving(answer) as url:
            with pytest.raises(ControlPortError, match=r"decisions/r2 answers 404.*no such thing"):
                await ControlPort(url, session).decision("r2")
        async with serving(of_another_form) as url:
            with pytest.raises(ControlPortError, match=r"0\.ranks\.0\.trust"):
                await ControlPort(url, session).workers()
        with pytest.raises(ControlPortError, match=r"http://127\.0\.0\.1:1/debug/findings"):
            await ControlPort("http://127.0.0.1:1", session).findings()
