"""``kvroute explain`` against a control port in this process."""

import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kvroute.command import kvroute
from tests.loadgen.serving import serving


def candidate(worker: str, **changes: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "worker": worker, "dp_rank": 0, "eligible": True, "excluded_by": None, "trust": "exact",
        "block_size": 16, "gpu_blocks": 3, "host_pinned_blocks": 2, "storage_blocks": 1,
        "predicted_blocks": 0, "observed_blocks": 0, "matched_tokens": 96, "in_flight": 4,
        "queued_prefill_tokens": 512, "terms_ms": {"queue": 1.25, "prefill": 10.0}, "cost_ms": 11.25,
    }  # fmt: skip
    return fields | changes


DECISION: dict[str, object] = {
    "request_id": "r1", "time": 0.0, "model": "m", "api": "chat", "policy": "cost",
    "prompt_tokens": 120, "chosen": {"worker": "w1", "dp_rank": 0}, "reason": "lowest_cost",
    "candidates": [
        candidate("w1", observed_blocks=1),
        candidate("w2", eligible=False, excluded_by="draining", terms_ms={}, cost_ms=None),
    ],
    "num_candidates": 2, "excluded": {"draining": 1}, "timing_us": {},
    "rates": {"prefill": "learned", "fetch": "default"},
}  # fmt: skip

WORKERS = [
    {"worker": "w1", "state": "serving", "model": "m", "aliases": ["m2"], "adapters": [], "error": None},
    {"worker": "w2", "state": "draining", "model": "m"},
    {"worker": "w3", "state": "pending", "model": None, "error": "connection refused"},
    {"worker": "w4", "state": "unhealthy", "model": "m", "error": "http://w4/health answers 503"},
]  # fmt: skip


class ControlPort:
    """Answers every dry run with the decision, and remembers the last one asked."""

    def __init__(
        self, answer: object = DECISION, status: int = 200, workers: object = WORKERS
    ) -> None:
        self.answer = answer
        self.status = status
        self.workers = workers
        self.path = ""
        self.query: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.body: Any = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/debug/workers":
            return web.json_response(self.workers)
        self.path, self.query = request.path, dict(request.query)
        self.headers, self.body = dict(request.headers), await request.json()
        return web.json_response(self.answer, status=self.status)


async def test_a_prompt_becomes_a_chat_and_the_answer_a_table() -> None:
    port = ControlPort()
    async with serving(port.handle) as url:
        ended = await kvroute("explain", "hello", "--control-url", url, "--token", "secret")
    assert ended.code == 0, ended.stderr
    assert port.path == "/debug/route"
    assert port.body == {"messages": [{"role": "user", "content": "hello"}]}
    assert port.headers["Authorization"] == "Bearer secret"
    for word in ("w1/0", "observed", "11.2", "draining", "lowest_cost", "prefill", "excluded by"):
        assert word in ended.stdout
    assert "120 prompt tokens of m (chat) would go to w1/0" in " ".join(ended.stdout.split())


async def test_a_whole_body_with_its_api_and_json_on_stdout(tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"input_ids": [1, 2]}')
    port = ControlPort()
    async with serving(port.handle) as url:
        ended = await kvroute(
            "explain", "--body", str(body), "--api", "generate", "--control-url", url, "--json", "-"
        )
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout) == DECISION
    assert port.query == {"api": "generate"}
    assert port.body == {"input_ids": [1, 2]}
    assert "w1/0" in ended.stderr


async def test_what_is_no_decision_ends_with_1() -> None:
    for port, words in [
        (ControlPort({"error": {"message": "no such path."}}, 404), "answers 404: no such path;"),
        (ControlPort({"detail": "Not Found"}, 404), "is this the control port (8081)?"),
        (
            ControlPort({"detail": "the token is wrong"}, 401),
            "401: the token is wrong; give it with --token",
        ),
        (ControlPort([]), "no decision"),
        (ControlPort(workers=[{}]), "/debug/workers"),
        (ControlPort({"candidates": []}), "no decision"),
    ]:
        async with serving(port.handle) as url:
            ended = await kvroute("explain", "hello", "--control-url", url)
        assert ended.code == 1
        assert words in ended.stderr


async def test_no_router_ends_with_1() -> None:
    ended = await kvroute("explain", "hello", "--control-url", "http://127.0.0.1:1")
    assert ended.code == 1
    assert ended.stderr == "kvroute: cannot connect to http://127.0.0.1:1: connection refused\n"


async def test_a_prompt_without_tokens_says_why() -> None:
    unknown = DECISION | {"prompt_tokens": None, "unrouted_by": "no_tokenizer", "is_cut": False}
    async with serving(ControlPort(unknown).handle) as url:
        ended = await kvroute("explain", "hello", "--control-url", url)
    assert "By load alone: no tokenizer of its model is known" in " ".join(ended.stdout.split())


async def test_a_url_needs_no_scheme_and_workers_that_do_not_serve_are_named() -> None:
    async with serving(ControlPort().handle) as url:
        ended = await kvroute("explain", "hello", "--control-url", url.removeprefix("http://"))
    assert ended.code == 0, ended.stderr
    assert "not serving: w2: draining" in ended.stdout
    assert "not serving: w3: not learned yet (connection refused)" in ended.stdout
    assert "not serving: w4: unhealthy (http://w4/health answers 503)" in ended.stdout
    assert "not serving: w1" not in ended.stdout


async def test_a_model_that_nobody_serves_ends_with_1_and_names_those_that_are() -> None:
    other = candidate("w1", eligible=False, excluded_by="other_model", terms_ms={}, cost_ms=None)
    nobody = {"model": "nope", "chosen": None, "reason": "no_candidate", "candidates": [other]}
    port = ControlPort(DECISION | nobody | {"excluded": {"other_model": 1}})
    async with serving(port.handle) as url:
        ended = await kvroute("explain", "hi", "--model", "nope", "--control-url", url)
    assert ended.code == 1
    assert "No worker serves the model 'nope' (served: m, m2)" in ended.stderr
