"""Engines that are examined in this process: what is looked at, and what comes of it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from kvroute.doctor import Check, EarTimes, Examination, RoundOptions, Status, VisitOptions, examine
from kvroute.tap import worker_entry
from prompt import BUNDLED_MODEL_NAME, PromptModel, bundled_model_dir, view_request
from prompt.tokenizer import unpack_tokens
from prompt.view import Api
from tests.router.stub_engine import StubEngine
from tests.router.stub_worker import Peer, Script, response

OPTIONS = RoundOptions(
    VisitOptions(times=EarTimes(connect_s=0.5, replay_s=1.0, listen_s=0.0), rest_s=0.3)
)
MODEL = PromptModel.load(bundled_model_dir(), name=BUNDLED_MODEL_NAME)


async def look(*urls: str, options: RoundOptions = OPTIONS) -> Examination:
    async with asyncio.timeout(30.0):
        return await examine([worker_entry(url) for url in urls], options)


def of(found: Examination, index: int = 0) -> dict[str, Check]:
    """The worst check of each name of one worker."""
    worst: dict[str, Check] = {}
    for one in found.workers[index].checks:
        before = worst.get(one.name)
        if before is None or list(Status).index(one.status) > list(Status).index(before.status):
            worst[one.name] = one
    return worst


def tokenizes(*, shift: int = 0) -> Script:
    """Answers ``/tokenize`` as the bundled model does, ``shift`` further on; refuses anything else."""

    async def script(peer: Peer) -> None:
        if peer.request.target != "/tokenize":
            await peer.send(response(b"{}", status=500))
            return
        api = Api.CHAT if b'"messages"' in peer.request.body else Api.COMPLETIONS
        tokens = unpack_tokens(MODEL.prompt_tokens(view_request(api, peer.request.body)).tokens)
        body = {"tokens": [token + shift for token in tokens], "count": len(tokens)}
        await peer.send(response(json.dumps(body).encode()))

    return script


def kv_events(port: int, **changes: object) -> dict[str, object]:
    events: dict[str, object] = {
        "publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": port,
        "topic": "", "block_size": 4, "dp_size": 1,
    }  # fmt: skip
    return events | changes


def info(engine: StubEngine) -> dict[str, Any]:
    page = engine.pages["/server_info"]
    assert isinstance(page, Mapping)
    return dict(page)
