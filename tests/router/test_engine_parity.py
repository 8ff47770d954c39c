"""The router's tokens beside the engine's own: what is sent to it, what is said where they differ, and afterwards."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prompt import PromptModel, bundled_model_dir
from protocol import EngineKind
from tests.router.stub_engine import stub_engine
from tests.router.test_service import Service, service
from tests.router.tokenizing_engine import TokenizingEngine, tokenizing_engine

MODEL = bundled_model_dir()
CONFIGURED = {"tokenizers": {"m": str(MODEL)}}
SENDS = {"prompts": {"sends_token_ids": True}, **CONFIGURED}
WORDS = "What the router weighs is what is held. " * 4
MESSAGES = [{"role": "system", "content": "Be short."}, {"role": "user", "content": WORDS}]
CHAT = json.dumps({"model": "m", "messages": MESSAGES, "n": 1, "x": [1, 2.50]}, indent=2).encode()
FRONT = b'{"kv_transfer_params":{"prompt_token_ids":['
JSON = {"content-type": "application/json"}


async def send(router: Service, body: bytes, path: str = "/v1/chat/completions") -> None:
    answer = await router.data.post(path, content=body, headers=JSON)
    assert answer.status_code == 200, answer.text


async def proved(router: Service, one: TokenizingEngine) -> None:
    """Wait until chats go on with their tokens, which is once the engine has been compared."""
    async with asyncio.timeout(10):
        while True:
            await send(router, CHAT)
            if one.last_body != CHAT:
                return
            await asyncio.sleep(0.01)


async def asked_all(one: TokenizingEngine) -> None:
    """Wait until the engine has been compared, and a moment that what came of it is known."""
    async with asyncio.timeout(10):
        while one.num_asked < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def transferred(body: bytes) -> Any:
    return json.loads(body).get("kv_transfer_params")


async def test_a_vllm_is_given_the_tokens_that_it_would_make() -> None:
    async with tokenizing_engine(MODEL) as one, service(one.engine, **SENDS) as router:
        await router.ready()
        await proved(router, one)
        body = one.last_body
        assert transferred(body) == {"prompt_token_ids": one.ids(CHAT)}
        end = body.index(b"]},") + 3
        assert body[:end].startswith(FRONT)
        assert b"{" + body[end:] == CHAT  # all else byte for byte
        request = one.engine.worker.requests[-1]
        assert request.values("content-length") == [str(len(body))]


CHATS = "/v1/chat/completions"
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": WORDS}),
    ("/v1/completions", {"prompt": [1, 2, 3]}),
    ("/v1/messages", {"messages": MESSAGES[1:], "max_tokens": 5}),
    ("/v1/responses", {"input": WORDS}),
    (CHATS, {"messages": MESSAGES, "kv_transfer_params": {"a": 1}}),
    (CHATS, {"messages": MESSAGES, "kv_transfer_params": None}),
    (CHATS, {"messages": MESSAGES, "chat_template": "{{ messages }}"}),
    (CHATS, {"messages": []}),
    (CHATS, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}),
]


async def test_other_bodies_go_on_as_they_came() -> None:
    async with tokenizing_engine(MODEL) as one, service(one.engine, **SENDS) as router:
        await router.ready()
        await proved(router, one)
        for path, fields in OTHERS:
            body = json.dumps({"model": "m", **fields}).encode()
            await send(router, body, path)
            assert one.last_body == body


async def test_by_default_no_body_is_touched() -> None:
    async with tokenizing_engine(MODEL) as one, service(one.engine, **CONFIGURED) as router:
        await router.ready()
        await asked_all(one)
        for _ in range(5):
            await send(router, CHAT)
            assert one.last_body == CHAT


async def test_an_engine_that_makes_other_tokens_is_given_none(tmp_path: Path) -> None:
    place = Path(shutil.copytree(MODEL, tmp_path / "m"))
    without_start(place)
    async with tokenizing_engine(place) as one, service(one.engine, **SENDS) as router:
        await router.ready()
        await finding(router)
        for _ in range(5):
            await send(router, CHAT)
            assert one.last_body == CHAT


async def test_engines_of_other_kinds_are_given_none() -> None:
    async with (
        tokenizing_engine(MODEL) as one,
        stub_engine() as other,
        service(one.engine, other, **SENDS) as router,
    ):
        await router.ready()
        await asked_all(one)
        for _ in range(6):
            await send(router, CHAT)
        requests = [*one.engine.worker.requests, *other.worker.requests]
        bodies = [one.body for one in requests if one.target == "/v1/chat/completions"]
        assert bodies == [CHAT] * 6


def template_of(place: Path) -> str:
    found: str = json.loads((place / "tokenizer_config.json").read_text())["chat_template"]
    return found


def without_start(place: Path) -> None:
    """A template that forgets the start token."""
    text = template_of(place).replace("{{- bos_token }}\n", "")
    (place / "chat_template.jinja").write_text(text)


def with_two_starts(place: Path) -> None:
    """A template that writes it twice."""
    (place / "chat_template.jinja").write_text("{{- bos_token }}" + template_of(place))


def other_template(place: Path) -> None:
    """Other words around turns."""
    (place / "chat_template.jinja").write_text(template_of(place).replace("assistant", "model"))


def without_own_start(place: Path) -> None:
    """A tokenizer that puts no start token in front of texts."""
    path = place / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))


def other_tokenizer(place: Path) -> None:
    """One of another vocabulary."""
    path = place / "tokenizer.json"
    document = json.loads(path.read_text())
    document["model"]["merges"] = document["model"]["merges"][:40]
    path.write_text(json.dumps(document))


async def finding(router: Service, kind: str = "tokens_differ") -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            found = (await router.control.get("/debug/findings")).json()
            for one in found if isinstance(found, list) else found["findings"]:
                if one["kind"] == kind:
                    shown: dict[str, Any] = one
                    return shown
            await asyncio.sleep(0.01)


async def no_finding(router: Service, kind: str = "tokens_differ") -> None:
    async with asyncio.timeout(10):
        while kind in (await router.control.get("/debug/findings")).text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (other_template, "a chat"),
        (without_start, "a chat"),
        (with_two_starts, "a chat"),
        (without_own_start, "a text"),
        (other_tokenizer, "a text"),
    ],
)
async def test_a_wrong_tokenizer_or_template_is_named_at_once_and_forgotten_once_mended(
    tmp_path: Path, spoil: Callable[[Path], None], what: str
) -> None:
    """The router's own is wrong: until it is right the engine is asked."""
    place = Path(shutil.copytree(MODEL, tmp_path / "m"))
    spoil(place)
    async with (
        tokenizing_engine(MODEL) as one,
        service(
            one.engine, tokenizers={"m": str(place)}, health={"refresh_s": 0.1, "interval_s": 0.05}
        ) as router,
    ):
        await router.ready()
        told = await finding(router)
        assert f"tokens of {what}" in told["evidence"]["difference"]
        assert [rank["worker"] for rank in told["ranks"]] == [one.engine.name]
        (worker,) = await router.workers()
        assert worker["prompt_model"]["rung"] == "asked"  # type: ignore[index]
        decision = (await router.control.post("/debug/route", content=CHAT)).json()
        assert decision["prompt_tokens"] == len(one.ids(CHAT))
        (place / "chat_template.jinja").unlink(missing_ok=True)
        (place / "tokenizer.json").write_bytes((MODEL / "tokenizer.json").read_bytes())
        await no_finding(router)
        (worker,) = await router.workers()
        assert worker["prompt_model"]["rung"] == "configured"  # type: ignore[index]


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
AGENT = {
    "model": "m",
    "tools": TOOLS,
    "messages": [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "It is there."},
    ],
}


@pytest.mark.parametrize("is_known", [True, False])
async def test_chats_with_tools_have_an_sglangs_tokens_once_it_has_shown_them(
    tmp_path: Path, *, is_known: bool
) -> None:
    """They are placed by alike texts until then, and where it makes others of such chats."""
    place = Path(shutil.copytree(MODEL, tmp_path / "m"))
    async with (
        tokenizing_engine(place, str(MODEL), is_sglang=True) as one,
        service(one.engine) as router,
    ):
        if not is_known:  # a release that renders tools in a way of its own
            text = template_of(place).replace("<|turn|>tools", "<|turn|>functions")
            (place / "chat_template.jinja").write_text(text)
            other = PromptModel.load(place)
            one.model = other.for_engines({EngineKind.SGLANG}, follows_sglang=True)
        await router.ready()
        async with asyncio.timeout(10):
            while one.num_asked < (6 if is_known else 4):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        body = json.dumps(AGENT).encode()
        async with asyncio.timeout(10):
            while True:
                found = (await router.control.post("/debug/route", content=body)).json()
                if found["is_approximate"] is not is_known:
                    break
                await asyncio.sleep(0.01)
        assert (found["prompt_tokens"] == len(one.ids(body))) is is_known
        plain = (await router.control.post("/debug/route", content=CHAT)).json()
        assert (plain["is_approximate"], plain["prompt_tokens"]) == (False, len(one.ids(CHAT)))
