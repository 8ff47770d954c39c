"""Where the tokenizer comes from: rung by rung, through a whole router, and what each rung is worth."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from prompt import bundled_model_dir
from tests.router.stub_engine import stub_engine
from tests.router.test_service import Service, service
from tests.router.tokenizing_engine import tokenizing_engine

MODEL = bundled_model_dir()
TEXT = {"model": "m", "prompt": "What the router weighs is what is held. " * 4}
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT["prompt"]}]}


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A hub cache with the model ``org/name``."""
    folder = tmp_path / "hub" / "models--org--name"
    (folder / "snapshots").mkdir(parents=True)
    (folder / "snapshots" / ("a" * 40)).symlink_to(MODEL)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    return tmp_path / "hub"


async def shown(router: Service) -> dict[str, Any]:
    """The model's rung as `/debug/workers` shows it."""
    (worker,) = await router.workers()
    found = worker["prompt_model"]
    assert isinstance(found, dict)
    return found


async def until_rung(router: Service, rung: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while (await shown(router))["rung"] != rung:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return await shown(router)


async def decided(router: Service, body: dict[str, Any]) -> dict[str, Any]:
    """How a request was decided that was really sent."""
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    answer = await router.data.post(path, json=body)
    assert answer.status_code == 200
    request_id = answer.headers["x-request-id"]
    found: dict[str, Any] = (await router.control.get(f"/debug/decisions/{request_id}")).json()
    return found


@pytest.mark.parametrize(
    ("rung", "names", "settings"),
    [
        ("configured", "/nowhere", {"tokenizers": {"m": str(MODEL)}}),
        ("engine", str(MODEL), {}),
        ("hub", "org/name", {}),
        ("approximate", "org/other", {}),
        ("none", "org/other", {"approximates": False}),
    ],
)
async def test_the_rung_of_a_model(
    hub: Path, rung: str, names: str, settings: dict[str, Any]
) -> None:
    prompts = {"hub_cache": str(hub)}
    if "approximates" in settings:
        prompts |= settings
        settings = {}
    async with (
        stub_engine(tokenizer=names) as engine,
        service(engine, prompts=prompts, **settings) as router,
    ):
        await router.ready()
        found = await until_rung(router, rung)
        is_known = rung in ("configured", "engine", "hub")
        assert (found["backend"] is not None) is is_known
        assert (found["detail"] is None) is is_known
        decision = await decided(router, CHAT)
        assert (decision["prompt_tokens"] is None) is (rung == "none")
        ids = (
            await router.control.post("/debug/route", json={"model": "m", "prompt": [1, 2, 3]})
        ).json()
        assert ids["prompt_tokens"] == 3  # ids need no tokenizer


async def test_the_rung_of_an_engine_that_is_asked() -> None:
    """Each prompt once; its tokens are the engine's own."""
    async with tokenizing_engine(MODEL) as one, service(one.engine) as router:
        await router.ready()
        found = await until_rung(router, "asked")
        assert "names no tokenizer" in found["detail"]
        for body in (CHAT, TEXT):
            before = one.num_asked
            first = await decided(router, body)
            assert first["prompt_tokens"] == len(one.ids(json.dumps(body).encode()))
            assert (await decided(router, body))["prompt_tokens"] == first["prompt_tokens"]
            assert one.num_asked == before + 1


async def test_an_engine_that_hangs_holds_up_nobody_for_long() -> None:
    """A bounded wait, then by what is remembered; and it is not asked with every request."""
    async with (
        tokenizing_engine(MODEL) as one,
        service(one.engine, prompts={"ask_timeout_s": 0.05}) as router,
    ):
        await router.ready()
        await until_rung(router, "asked")
        one.hangs, before = True, one.num_asked
        async with asyncio.timeout(5):
            for number in range(20):
                body = {"model": "m", "prompt": f"{number} {TEXT['prompt']}"}
                assert (await router.data.post("/v1/completions", json=body)).status_code == 200
        assert one.num_asked == before + 1
        text = (await router.control.get("/metrics")).text
        assert 'kvroute_asked_prompts_total{result="failed"} 20.0' in text


async def test_a_tokenizer_that_does_not_load_is_not_tried_again_with_every_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    async with (
        stub_engine(tokenizer=str(tmp_path)) as engine,
        service(engine, health={"refresh_s": 3600}) as router,
    ):
        await router.ready()
        found = await until_rung(router, "approximate")
        assert "not a tokenizer" in found["detail"]
        (tmp_path / "tokenizer.json").write_bytes((MODEL / "tokenizer.json").read_bytes())
        for _ in range(5):
            assert (await decided(router, CHAT))["prompt_tokens"] is not None
        assert (await shown(router))["rung"] == "approximate"
    assert "Traceback" not in caplog.text


async def test_a_configured_directory_that_fails_leaves_the_engines_own(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    async with (
        stub_engine(tokenizer=str(MODEL)) as engine,
        service(engine, tokenizers={"m": str(tmp_path)}) as router,
    ):
        await router.ready()
        found = await until_rung(router, "engine")
        assert found["directory"] == str(MODEL)
        assert f"{tmp_path}/tokenizer.json: not a tokenizer" in found["detail"]
        assert (await decided(router, CHAT))["prompt_tokens"] > 20
