"""What is secret is told nowhere: every text that a router shows or writes is searched for marks."""

import asyncio
import hashlib
import json
import logging
import os
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from router.config import ConfigError, load_config
from tests.router.stub_engine import StubEngine, answer_chat, stub_engine
from tests.router.stub_worker import Peer
from tests.router.test_service import Service, service

MARK = "MARKED"
CLIENT_KEY = f"kvr-{MARK}-client"
WRONG_KEY = f"kvr-{MARK}-wrong"
PROMPT = f"a prompt that is {MARK}-prompt and of nobody's business, at some length"
SETTINGS: dict[str, object] = {
    "control_token": f"{MARK}-control",
    "worker_token": f"{MARK}-worker",
    "bootstrap": {"token": f"{MARK}-sibling"},
    "keys": [
        {
            "name": "team-a",
            "sha256": hashlib.sha256(CLIENT_KEY.encode()).hexdigest(),
            "cache_salt": f"{MARK}-salt-of-a-tenant",
            "sees_scores": True,
        }
    ],
}
CONTROL = {"Authorization": f"Bearer {MARK}-control"}
SHOWN = (
    "/health",
    "/ready",
    "/workers",
    "/metrics",
    "/openapi.json",
    "/debug/workers",
    "/debug/findings",
    "/debug/index",
    "/debug/index/dump",
    "/debug/decisions",
    "/nowhere",
)
REQUEST_IDS = ("one", "two")


@dataclass
class Marked:
    """A running router whose every secret bears the mark, and what its clients were told."""

    router: Service
    engine: StubEngine
    told: list[httpx.Response]

    async def shown(self) -> list[httpx.Response]:
        """Every page of the control port."""
        pages = [*SHOWN, *(f"/debug/decisions/{one}" for one in REQUEST_IDS)]
        return [await self.router.control.get(page, headers=CONTROL) for page in pages]


def chat(**more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": PROMPT}], **more}


@asynccontextmanager
async def marked(**more: object) -> AsyncIterator[Marked]:
    """After requests of every kind: served, refused, broken, administering."""

    async def script(peer: Peer) -> None:
        if "two" in peer.request.values("x-request-id"):
            peer.reset()
        else:
            await answer_chat(peer)

    async with stub_engine(script=script) as engine, service(engine, **SETTINGS, **more) as router:
        await router.ready()
        ours = {"Authorization": f"Bearer {CLIENT_KEY}"}
        told = []
        for path, headers, body in (
            ("/v1/chat/completions", {**ours, "x-request-id": "one"}, chat()),
            ("/v1/chat/completions", {**ours, "x-request-id": "two"}, chat()),
            ("/v1/chat/completions", {"x-api-key": CLIENT_KEY}, chat(cache_salt=f"{MARK}-own")),
            ("/v1/chat/completions", {"Authorization": f"Bearer {WRONG_KEY}"}, chat()),
            ("/v1/chat/completions", {"Authorization": f"Basic {WRONG_KEY}"}, chat()),
            (f"/v1/chat/completions?api_key={WRONG_KEY}", {}, chat()),
            (f"/v1/chat/completions?api_key={WRONG_KEY}", ours, chat()),
            ("/v1/chat/completions", ours, {"model": "m", "messages": PROMPT}),
            ("/flush_cache", ours, {}),
        ):
            told.append(await router.data.post(path, headers=headers, json=body))
        garbled = json.dumps(chat())[:-5].encode()
        told.append(await router.data.post("/v1/chat/completions", headers=ours, content=garbled))
        for headers in ({}, {"Authorization": f"Bearer {MARK}-contro"}):
            told.append(await router.control.get("/workers", headers=headers))
        for body in (
            {"url": f"http://user:{MARK}-password@127.0.0.1"},
            {"url": f"http://127.0.0.1/?key={MARK}-query"},
            {"url": "http://127.0.0.1:1", "token": f"{MARK}-field"},
        ):
            told.append(await router.control.post("/workers", headers=CONTROL, json=body))
        dry = await router.control.post("/debug/route", headers=CONTROL, json=chat())
        told.append(dry)
        yield Marked(router, engine, told)


async def test_nothing_that_a_router_shows_or_logs_bears_a_secret(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG, "router")
    caplog.set_level(logging.DEBUG, "scoring")
    caplog.set_level(logging.DEBUG, "indexer")
    log = tmp_path / "access.log"
    async with marked(access_log={"format": "json", "file": str(log)}) as one:
        answers = [*one.told, *await one.shown()]
        served = [answer.status_code for answer in one.told]
        assert served[:4] == [200, 502, 200, 401]
        for answer in answers:
            said = f"{answer.status_code} {answer.headers} {answer.text}"
            assert MARK not in said, f"{answer.request.method} {answer.request.url}"
    assert len(log.read_text().splitlines()) >= 9
    for text in (caplog.text, *capfd.readouterr(), log.read_text()):
        assert MARK not in text


async def test_workers_get_their_own_secret_and_no_clients() -> None:
    async with marked() as one:
        requests = one.engine.worker.requests
    assert len(requests) > 5
    for request in requests:
        given = [f"{name}: {value}" for name, value in request.headers]
        assert f"Authorization: Bearer {MARK}-worker" in [
            line.replace("authorization", "Authorization") for line in given
        ]
        for line in given:
            assert MARK not in line.replace(f"{MARK}-worker", "")
        assert f"{MARK}-salt" not in request.body.decode()
        assert f"{MARK}-own" not in request.body.decode()


def test_the_configuration_in_memory_does_not_print_its_secrets() -> None:
    config = load_config(None, SETTINGS, {})
    for text in (repr(config), str(config), config.model_dump_json(), f"{config.keys[0]!r}"):
        assert MARK not in text


@pytest.mark.parametrize(
    "bad",
    [
        {"control_token": {MARK: 1}},
        {"worker_token": [MARK]},
        {"bootstrap": {"token": [MARK]}},
        {"bootstrap": MARK},
        {"keys": [MARK]},
        {"keys": MARK},
        {"keys": [{"name": MARK + " ", "sha256": MARK}]},
        {"keys": [{"name": "a", "sha256": "0" * 64, "cache_salt": MARK}]},
        {"keys": [{"name": "a", "sha256": "0" * 64, "cache_salt": [MARK]}]},
    ],
)
def test_a_configuration_that_is_refused_does_not_repeat_them(bad: dict[str, object]) -> None:
    """Neither in its message nor in what Python prints of the error."""
    with pytest.raises(ConfigError) as told:
        load_config(None, bad, {})
    assert MARK not in "".join(traceback.format_exception(told.value))


async def told_by(*arguments: str) -> str:
    """All that the command writes; its tokens come from the environment."""
    tokens = {
        "KVROUTE_CONTROL_TOKEN": f"{MARK}-control",
        "KVROUTE_WORKER_TOKEN": f"{MARK}-worker",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kvroute", *arguments),
        env=os.environ | tokens,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


async def test_commands_that_are_given_secrets_do_not_write_them() -> None:
    async with marked() as one:
        control = str(one.router.control.base_url)
        told = await asyncio.gather(
            told_by("explain", "hello", "--model", "m", "--control-url", control, "--json", "-"),
            told_by("explain", "hello", "--control-url", "http://127.0.0.1:1"),
            told_by("doctor", control, one.engine.url, "--listen", "0", "--json", "-"),
        )
    assert '"chosen"' in told[0]
    assert "127.0.0.1:1" in told[1]
    assert '"checks"' in told[2]
    assert MARK not in "".join(told)
