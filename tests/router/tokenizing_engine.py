"""An engine that renders and tokenizes for others, and remembers what its chats came with."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prompt import Api, NoTokensError, PromptModel, unpack_tokens, view_request
from protocol import EngineKind
from tests.router.stub_engine import StubEngine, answer_chat, stub_engine
from tests.router.stub_worker import Peer, response


@dataclass
class TokenizingEngine:
    """An engine of model ``m``.

    Attributes:
        model: what it renders and tokenizes with.
        hangs: `/tokenize` is not answered.
    """

    engine: StubEngine
    model: PromptModel
    hangs: bool = False

    def ids(self, body: bytes) -> list[int]:
        """The prompt's tokens as it makes them."""
        api = Api.CHAT if "messages" in json.loads(body) else Api.COMPLETIONS
        return unpack_tokens(self.model.whole_prompt(view_request(api, body)).tokens)

    @property
    def num_asked(self) -> int:
        """Calls of `/tokenize` so far."""
        return sum(request.target == "/tokenize" for request in self.engine.worker.requests)

    @property
    def last_body(self) -> bytes:
        """Of the last request that was no such call."""
        bodies = [
            request.body
            for request in self.engine.worker.requests
            if request.method == "POST" and request.target != "/tokenize"
        ]
        return bodies[-1]


@asynccontextmanager
async def tokenizing_engine(
    directory: Path, tokenizer: str = "", *, is_sglang: bool = False
) -> AsyncIterator[TokenizingEngine]:
    """One that uses the files of ``directory``, a vLLM by default.

    Args:
        tokenizer: the directory that it names to others.
    """

    async def serve(peer: Peer) -> None:
        if peer.request.target != "/tokenize":
            await answer_chat(peer)
        elif found.hangs:
            await peer.gone()
        else:
            try:
                told = {"tokens": found.ids(peer.request.body)}
            except NoTokensError:
                await peer.send(response(b"{}", status=400))
            else:
                await peer.send(response(json.dumps(told).encode()))

    model = PromptModel.load(directory)
    async with stub_engine(tokenizer=tokenizer, script=serve, tokenizes=True) as engine:
        if is_sglang:
            model = model.for_engines({EngineKind.SGLANG}, follows_sglang=True)
        else:
            card = {"id": "m", "object": "model", "root": tokenizer or None, "parent": None}
            engine.pages = {"/v1/models": {"data": [card]}, "/version": {"version": "0.32.0"}}
        found = TokenizingEngine(engine, model)
        yield found
