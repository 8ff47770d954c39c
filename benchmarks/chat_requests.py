"""What the data plane's benchmark sends: chats of a size, conversations that grow, streams, plain bodies.

The texts of conversations are seeded: no two conversations share their beginnings, and none is sent twice,
so that a turn is new where it says so to whoever remembers prompts. Each request carries the counts that
an engine would report for it, because the stub engines tokenize nothing.
"""

import json
from dataclasses import dataclass
from random import Random

from benchmarks.load_client import request_bytes
from benchmarks.stub_engine import Wish
from prompt import BUNDLED_MODEL_NAME, Api, PromptModel, view_request

MODEL = BUNDLED_MODEL_NAME
TURN_BYTES = 2048
STREAM_CHUNKS = 300
CHAT_PATH = "/v1/chat/completions"
_STEMS = "route cache token block prefix engine worker rank queue lease score event store match tier load"
_ENDINGS = (
    "",
    "s",
    "ed",
    "ing",
    "er",
    "able",
    "less",
    "-1",
    ".",
    ",",
    "?",
    " of",
    " and the",
    "\n",
)


def chat_body(number: int, size_bytes: int = 2048) -> bytes:
    """A chat of about ``size_bytes`` whose beginning all of them share."""
    words = ("The router weighs what each worker holds against what it is busy with. " * 40).split()
    question = f" Which worker answers soonest, and why? {number:06}"
    body = _body([{"role": "user", "content": ""}])
    room = size_bytes - len(json.dumps(body)) - len(question)
    return json.dumps(
        _body([{"role": "user", "content": " ".join(words)[:room] + question}])
    ).encode()


def _body(messages: list[dict[str, str]]) -> dict[str, object]:
    system = {"role": "system", "content": "You answer in one sentence."}
    return {"model": MODEL, "messages": [system, *messages], "max_tokens": 16}


def chats(count: int) -> list[bytes]:
    """Requests of 2 KB."""
    return [request_bytes(CHAT_PATH, chat_body(number)) for number in range(count)]


def streams(count: int, num_chunks: int) -> list[bytes]:
    """Streamed answers of so many events."""
    body = wishing(chat_body(0), Wish(num_chunks))
    return [
        request_bytes(CHAT_PATH, body.replace(b'"max_tokens"', b'"stream": true, "max_tokens"'))
    ] * count


def wishing(body: bytes, wish: Wish) -> bytes:
    """The body that tells the stub engine what to answer."""
    return body.removesuffix(b"}") + b', "user": "%s"}' % str(wish).encode()


def plain(bodies: list[bytes]) -> list[bytes]:
    """Bodies on a path that is routed on load."""
    return [request_bytes("/v1/embeddings", body) for body in bodies]


def text_of(rng: Random, size_bytes: int) -> str:
    """Words that a tokenizer has not all seen in this order, of exactly that size."""
    stems = _STEMS.split()
    parts: list[str] = []
    missing = size_bytes
    while missing > 0:
        number = str(rng.randrange(10_000)) if rng.random() < 0.1 else ""
        word = f"{rng.choice(stems)}{rng.choice(_ENDINGS)} {number}"
        parts.append(word)
        missing -= len(word)
    return "".join(parts)[:size_bytes]


def conversation(seed: int, size_bytes: int, num_turns: int) -> list[bytes]:
    """Bodies of one conversation: the first of about ``size_bytes``, each of the next one turn longer.

    A turn is the last answer and the next question, 2 KB together.
    """
    rng = Random(seed)
    roles = ("user", "assistant")
    half = TURN_BYTES // 2
    messages = [
        {"role": roles[index % 2], "content": text_of(rng, half)}
        for index in range(max(size_bytes // half - 1, 1) | 1)
    ]
    bodies = [json.dumps(_body(messages)).encode()]
    for _ in range(num_turns):
        messages += [
            {"role": "assistant", "content": text_of(rng, half)},
            {"role": "user", "content": text_of(rng, half)},
        ]
        bodies.append(json.dumps(_body(messages)).encode())
    return bodies


@dataclass(frozen=True, slots=True)
class Growth:
    """Several conversations of one size, turn by turn.

    Attributes:
        first: requests that nobody has seen any part of.
        turns: for each further turn, one request a conversation: all but its last 2 KB was sent before.
    """

    first: list[bytes]
    turns: list[list[bytes]]


def growth(model: PromptModel, seeds: range, size_bytes: int, num_turns: int) -> Growth:
    """Requests of as many conversations as there are seeds."""
    columns = []
    for seed in seeds:
        seen, column = 0, []
        for body in conversation(seed, size_bytes, num_turns):
            tokens = num_tokens(model, body)
            wish = Wish(prompt_tokens=tokens, cached_tokens=seen)
            column.append(request_bytes(CHAT_PATH, wishing(body, wish)))
            seen = tokens
        columns.append(column)
    first, *turns = (list(row) for row in zip(*columns, strict=True))
    return Growth(first, turns)


def num_tokens(model: PromptModel, body: bytes) -> int:
    """Tokens of a chat, as the engine would count them."""
    return len(memoryview(model.prompt_tokens(view_request(Api.CHAT, body)).tokens).cast("I"))
