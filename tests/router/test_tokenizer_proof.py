"""Tokens compared with an engine's own, and what follows for the ladder."""

import orjson
import pytest

from prompt import (
    Api,
    AskedKind,
    GivenIds,
    NoTokensError,
    PromptModel,
    bundled_model_dir,
    view_request,
)
from protocol import EngineKind, TokenBytes, WorkerId, WorkerSpec
from router.shelf import PromptShelf, Rung
from router.tokenize_route import TokenizeError, Told
from router.tokenizer_findings import tokenizer_findings
from router.tokenizer_proof import Proof, Prover

MODEL = PromptModel.load(bundled_model_dir())


def spec(worker: str = "w", engine: EngineKind = EngineKind.VLLM) -> WorkerSpec:
    return WorkerSpec(
        WorkerId(worker),
        f"http://{worker}",
        "m",
        engine=engine,
        tokenizer=str(bundled_model_dir()),
        aliases=("alias",),
    )


class Engine:
    """Tokenizes as the bundled model does, but for what it is told to do otherwise."""

    def __init__(self, **odd: Told | TokenizeError | str) -> None:
        self.odd = odd
        self.bodies: list[dict[str, object]] = []

    async def tokenize(self, url: str, body: bytes, timeout_s: float) -> Told:
        fields = orjson.loads(body)
        self.bodies.append(fields)
        kind = "chat" if "messages" in fields else "text"
        match self.odd.get(kind):
            case TokenizeError() as error:
                raise error
            case Told() as told:
                return told
            case str() as prefix:
                fields["messages"][0]["content"] = prefix
        view = view_request(Api.CHAT if kind == "chat" else Api.COMPLETIONS, orjson.dumps(fields))
        return Told(MODEL.prompt_tokens(view).tokens)


REFUSED, DOWN = TokenizeError("400", is_refusal=True), TokenizeError("down")
BROKEN = TokenizeError("500", is_broken=True)


@pytest.mark.parametrize(
    ("engine", "kind", "expected"),
    [
        (Engine(), EngineKind.VLLM, Proof(takes_texts=True, takes_chats=True)),
        (Engine(), EngineKind.SGLANG, Proof(takes_texts=True, takes_chats=True)),
        (Engine(chat=REFUSED), EngineKind.SGLANG, Proof(takes_texts=True)),
        (Engine(text=Told(None)), EngineKind.VLLM, Proof()),
        (Engine(chat=REFUSED), EngineKind.VLLM, Proof(takes_texts=True)),
        (Engine(text=REFUSED), EngineKind.VLLM, Proof(takes_chats=True)),
        (Engine(chat=BROKEN), EngineKind.SGLANG, Proof(takes_texts=True)),
        (Engine(text=BROKEN), EngineKind.SGLANG, None),
        (Engine(text=DOWN), EngineKind.VLLM, None),
        (Engine(chat=DOWN), EngineKind.VLLM, None),
    ],
)
async def test_what_an_engine_shows(engine: Engine, kind: EngineKind, expected: Proof) -> None:
    assert await Prover(engine, 1.0).prove(spec(engine=kind), MODEL) == expected
    assert await Prover(engine, 1.0).prove(spec(engine=kind), None) == expected


async def test_a_difference_is_told() -> None:
    engine = Engine(chat="You are somebody else.")
    proof = await Prover(engine, 1.0).prove(spec(), MODEL)
    assert proof is not None
    assert "tokens of a chat" in (proof.difference or "")
    assert engine.bodies[0]["model"] == "m"
    assert (await Prover(engine, 1.0).prove(spec(), None)) == Proof(
        takes_texts=True, takes_chats=True
    )


def shelf_of(*specs: WorkerSpec) -> PromptShelf:
    shelf = PromptShelf({})
    for one in specs:
        shelf.put(one, shelf.load(one))
    shelf.keep(specs)
    return shelf


DIFFERS = Proof(takes_texts=True, takes_chats=True, difference="others")


def test_tokens_that_differ_are_not_used_and_the_engine_is_asked() -> None:
    one, two = spec(), spec("v")
    shelf = shelf_of(one, two)
    assert shelf.shelved("m").rung is Rung.ENGINE
    shelf.prove(one.worker, DIFFERS, 5.0)
    (finding,) = tokenizer_findings(shelf.differences())
    assert (finding.kind, finding.since, finding.ranks) == ("tokens_differ", 5.0, one.ranks)
    assert finding.evidence == {"num_ranks": 1, "model": "m", "difference": "others"}
    found = shelf.shelved("m")
    assert (found.rung, found.model, found.detail) == (Rung.ASKED, None, "others")
    for name in ("m", "alias", None):
        assert isinstance(shelf.prompt_model(name), GivenIds)
        asked = shelf.asked(name)
        assert asked is not None
        assert [engine.url for engine in asked.engines] == [one.url]
    shelf.prove(two.worker, Proof(takes_texts=True), 5.0)
    asked = shelf.asked("m")
    assert asked is not None
    assert [engine.takes_chats for engine in asked.engines] == [True, False]
    shelf.prove(one.worker, Proof(takes_texts=True, takes_chats=True), 5.0)
    assert shelf.shelved("m").rung is Rung.ENGINE
    assert not list(tokenizer_findings(shelf.differences()))
    assert isinstance(shelf.prompt_model("alias"), PromptModel)
    assert shelf.asked("m") is None
    shelf.prove(one.worker, DIFFERS, 5.0)
    shelf.keep([two])
    assert shelf.shelved("m").rung is Rung.ENGINE


@pytest.mark.parametrize(
    ("kind", "proof", "rung", "asked_as"),
    [
        (EngineKind.VLLM, Proof(takes_texts=True, takes_chats=True), Rung.ASKED, AskedKind.VLLM),
        (EngineKind.SGLANG, Proof(takes_texts=True), Rung.ASKED, AskedKind.SGLANG),
        (EngineKind.VLLM, Proof(), Rung.NONE, None),
    ],
)
def test_without_a_tokenizer_engines_are_asked(
    kind: EngineKind, proof: Proof, rung: Rung, asked_as: AskedKind | None
) -> None:
    lacks = WorkerSpec(WorkerId("w"), "http://w", "m", engine=kind)
    shelf = shelf_of(lacks)
    assert (shelf.shelved("m").rung, shelf.asked("m")) == (Rung.NONE, None)
    shelf.prove(lacks.worker, proof, 5.0)
    found, asked = shelf.shelved("m"), shelf.asked("m")
    assert (found.rung, found.detail) == (rung, "the engine names no tokenizer")
    assert (None if asked is None else asked.kind) is asked_as
    model = shelf.prompt_model("m")
    assert model is not None
    with pytest.raises(NoTokensError):
        model.prompt_tokens(view_request(Api.COMPLETIONS, b'{"prompt": "hi"}'))


def test_where_both_engines_serve_a_model_what_they_make_alike_is_asked_about() -> None:
    specs = [
        WorkerSpec(WorkerId(f"w{number}"), f"http://w{number}", "m", engine=kind)
        for number, kind in enumerate((EngineKind.VLLM, EngineKind.SGLANG))
    ]
    shelf = shelf_of(*specs)
    for one in specs:
        shelf.prove(one.worker, Proof(takes_texts=True, takes_chats=True), 5.0)
    asked = shelf.asked("m")
    assert asked is not None
    assert (asked.kind, len(asked.engines)) == (AskedKind.BOTH, 2)


async def test_an_sglang_that_renders_chats_otherwise_is_named() -> None:
    proof = await Prover(Engine(chat="!"), 1.0).prove(spec(engine=EngineKind.SGLANG), MODEL)
    assert proof is not None
    assert "tokens of a chat" in (proof.difference or "")


class Sglang:
    """Renders and tokenizes chats as one does, but for the ``odd`` one, counted from the first that is asked about."""

    def __init__(self, odd: int | None = None, fault: TokenizeError | None = None) -> None:
        self.odd, self.fault = odd, fault
        self.model = MODEL.for_engines({EngineKind.SGLANG}, follows_sglang=True)
        self.num_chats = 0

    async def tokenize(self, url: str, body: bytes, timeout_s: float) -> Told:
        is_chat = b'"messages"' in body
        view = view_request(Api.CHAT if is_chat else Api.COMPLETIONS, body)
        self.num_chats += is_chat
        tokens = self.model.prompt_tokens(view).tokens
        if not is_chat or self.num_chats - 1 != self.odd:
            return Told(tokens)
        if self.fault is not None:
            raise self.fault
        return Told(TokenBytes(tokens[4:]))


@pytest.mark.parametrize(
    ("engine", "follows", "is_alike"),
    [
        (Sglang(), True, True),
        (Sglang(0), False, False),
        (Sglang(2), False, True),
        (Sglang(4), False, True),
        (Sglang(3, REFUSED), False, True),
        (Sglang(3, DOWN), False, True),
        (Sglang(3, BROKEN), False, True),
    ],
)
async def test_whether_an_sglang_renders_further_chats_as_is_known_of_it(
    engine: Sglang, *, follows: bool, is_alike: bool
) -> None:
    proof = await Prover(engine, 1.0).prove(spec(engine=EngineKind.SGLANG), MODEL)
    assert proof is not None
    assert (proof.follows, proof.difference is None) == (follows, is_alike)
    assert proof.takes_texts
    assert proof.takes_chats


async def test_an_engine_is_asked_of_further_chats_only_where_it_helps() -> None:
    engine = Sglang()
    assert await Prover(engine, 1.0).prove(spec(engine=EngineKind.SGLANG), None)
    assert engine.num_chats == 2
    other = Engine()
    proof = await Prover(other, 1.0).prove(spec(), MODEL)
    assert proof is not None
    assert (len(other.bodies), proof.follows) == (3, False)


def test_further_chats_are_followed_where_every_engine_has_shown_it() -> None:
    specs = [spec(f"w{number}", EngineKind.SGLANG) for number in range(2)]
    shelf = shelf_of(*specs)
    body = (
        b'{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"}]}'
    )
    view = view_request(Api.CHAT, body)

    def has_tokens() -> bool:
        model = shelf.prompt_model("m")
        assert model is not None
        try:
            return bool(model.prompt_tokens(view).tokens)
        except NoTokensError:
            return False

    follows = Proof(takes_texts=True, takes_chats=True, follows=True)
    assert not has_tokens()
    shelf.prove(specs[0].worker, follows, 5.0)
    assert not has_tokens()
    shelf.prove(specs[1].worker, follows, 5.0)
    assert has_tokens()
    shelf.keep([*specs, spec("v")])  # a vLLM joins them
    assert not has_tokens()
    shelf.keep(specs)
    shelf.prove(specs[1].worker, Proof(takes_texts=True, takes_chats=True), 5.0)
    assert not has_tokens()
