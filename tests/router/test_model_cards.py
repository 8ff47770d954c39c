"""The fleet's models: every name once, in OpenAI's form."""

import json

import pytest

from protocol import EngineKind, WorkerId, WorkerSpec
from router.discovery import Discovered
from router.model_cards import merged_cards
from tests.router.front_door import ask, front_door


def found(
    *cards: dict[str, object],
    model: str = "m",
    aliases: tuple[str, ...] = (),
    adapters: tuple[str, ...] = (),
    max_model_len: int | None = None,
) -> Discovered:
    spec = WorkerSpec(
        WorkerId("w"),
        "http://w",
        model,
        engine=EngineKind.SGLANG,
        aliases=aliases,
        adapters=adapters,
        max_model_len=max_model_len,
    )
    return Discovered(spec, cards)


def test_what_an_engine_says_of_a_model_stays() -> None:
    card: dict[str, object] = {
        "id": "m",
        "object": "model",
        "created": 5,
        "owned_by": "vllm",
        "root": "/m",
        "parent": None,
        "max_model_len": 100,
        "permission": [{"id": "p"}],
    }
    assert merged_cards([found(card)]) == [card]


def test_what_is_missing_is_added() -> None:
    cards: list[dict[str, object]] = [
        {"id": "m"},
        {"id": "n", "object": None, "created": "now", "owned_by": 3, "x": None},
    ]
    form = {"object": "model", "created": 0, "owned_by": "sglang"}
    assert merged_cards([found(*cards)]) == [{"id": "m"} | form, {"id": "n", "x": None} | form]


def test_names_that_are_served_and_not_listed_are_listed() -> None:
    one = found(model="m", aliases=("short",), adapters=("lora",), max_model_len=7)
    two = found({"id": "lora", "parent": "m"}, adapters=("lora",))
    cards = merged_cards([one, two])
    assert [(card["id"], card["parent"], card["max_model_len"]) for card in cards] == [
        ("m", None, 7),
        ("short", None, 7),
        ("lora", "m", 7),
    ]
    assert [card["id"] for card in merged_cards([two, one])] == ["lora", "m", "short"]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((5, 9, 7), 9), ((9, 5), 9), ((5, None), 5), ((None, 5), None), (("x", 5), "x")],
)
def test_the_longest_context_counts(lengths: tuple[object, ...], expected: object) -> None:
    fleet = [found({"id": "m", "max_model_len": length}) for length in lengths]
    (card,) = merged_cards(fleet)
    assert card["max_model_len"] == expected


def test_nobody_has_no_models() -> None:
    assert merged_cards([]) == []


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/models", 200),
        ("/v1/models/", 200),
        ("/v1/models?limit=1", 200),
        ("/v1/models/org/name", 200),
        ("/v1/models/org%2Fname", 200),
        ("/v1/models/org%2fname/", 200),
        ("/v1/models/org", 404),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_names_may_hold_slashes(target: str, status: int, method: str) -> None:
    async with front_door() as door:
        door.fleet.cards = [{"id": "org/name"}]
        answer = await ask(door, method, target, body=None)
    assert answer.status == status
    assert int(answer.values("content-length")[0]) > 0
    assert bool(answer.body) is (method == "GET")


@pytest.mark.parametrize("target", ["/v1/models", "/v1/models/m"])
async def test_before_workers_were_reached_models_are_awaited(target: str) -> None:
    async with front_door() as door:
        door.fleet.cards = []
        door.fleet.has_settled = False
        answer = await ask(door, "GET", target, body=None)
        assert (answer.status, answer.values("retry-after")) == (503, ["1"])
        assert json.loads(answer.body)["error"]["code"] == "no_worker"
        door.fleet.cards = [{"id": "m"}]
        assert (await ask(door, "GET", target, body=None)).status == 200
        assert (await ask(door, "GET", "/v1/models/later", body=None)).status == 503
        door.fleet.cards = []
        door.fleet.has_settled = True
        answer = await ask(door, "GET", target, body=None)
        assert answer.status == (200 if target.endswith("models") else 404)
