"""Which tokenizer a model gets, and what is said where it gets none."""

import contextlib
import shutil
from pathlib import Path

import pytest

from prompt import Api, GivenIds, NoTokensError, bundled_model_dir, view_request
from prompt.models import MAX_NAMES
from protocol import EngineKind, WorkerId, WorkerSpec
from router.shelf import PromptShelf, Rung


def spec(
    model: str = "m",
    tokenizer: str | None = None,
    aliases: tuple[str, ...] = (),
    adapters: tuple[str, ...] = (),
    worker: str = "w",
    engine: EngineKind = EngineKind.UNKNOWN,
) -> WorkerSpec:
    return WorkerSpec(
        WorkerId(worker),
        f"http://{worker}",
        model,
        engine=engine,
        tokenizer=tokenizer,
        aliases=aliases,
        adapters=adapters,
    )


def shelve(shelf: PromptShelf, *specs: WorkerSpec) -> None:
    for one in specs:
        shelf.put(one, shelf.load(one))
    shelf.keep(specs)


@pytest.mark.parametrize(
    ("configured", "tokenizer", "rung", "detail"),
    [
        ("m", None, Rung.CONFIGURED, None),
        ("alias", None, Rung.CONFIGURED, None),
        ("m", "/nowhere", Rung.CONFIGURED, None),
        ("other", str(bundled_model_dir()), Rung.ENGINE, None),
        ("other", None, Rung.NONE, "names no tokenizer"),
        ("other", "/nowhere", Rung.NONE, "no directory here"),
        ("other", str(Path(__file__).parent), Rung.NONE, "tokenizer.json"),
    ],
)
def test_the_ladder(configured: str, tokenizer: str | None, rung: Rung, detail: str | None) -> None:
    shelf = PromptShelf({configured: bundled_model_dir()})
    shelve(shelf, spec(tokenizer=tokenizer, aliases=("alias",)))
    found = shelf.shelved("m")
    assert found.rung is rung
    assert (found.model is not None) is (rung is not Rung.NONE)
    if found.model is None:
        assert isinstance(shelf.prompt_model("m"), GivenIds)
    else:
        assert shelf.prompt_model("m") is found.model
    assert detail is None or detail in (found.detail or "")


@pytest.mark.parametrize(
    ("tokenizer", "rung", "detail"),
    [
        ("org/name", Rung.HUB, None),
        (f"/their/cache/models--org--name/snapshots/{'a' * 40}", Rung.HUB, None),
        (str(bundled_model_dir()), Rung.ENGINE, None),
        ("org/other", Rung.NONE, "no directory here, and no model in the hub cache"),
        ("org/na\x00me", Rung.NONE, "no directory here"),
    ],
)
def test_a_model_in_the_hub_cache(
    tmp_path: Path, tokenizer: str, rung: Rung, detail: str | None
) -> None:
    folder = tmp_path / "models--org--name"
    (folder / "snapshots").mkdir(parents=True)
    (folder / "snapshots" / ("a" * 40)).symlink_to(bundled_model_dir())
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    shelf = PromptShelf({}, hub_cache=tmp_path)
    shelve(shelf, spec(tokenizer=tokenizer))
    found = shelf.shelved("m")
    assert found.rung is rung
    assert detail is None or detail in (found.detail or "")
    assert PromptShelf({}).load(spec(tokenizer="org/name")).rung is Rung.NONE


@pytest.mark.parametrize(
    ("configured", "tokenizer", "rung", "words"),
    [
        ("{empty}", "{good}", Rung.ENGINE, ["empty/tokenizer.json: there is no such file"]),
        ("{empty}", "org/name", Rung.HUB, ["empty/tokenizer.json: there is no such file"]),
        ("{empty}", "/nowhere", Rung.NONE, ["empty/tokenizer.json", "/nowhere is no directory"]),
        ("{empty}", "{broken}", Rung.NONE, ["empty/tokenizer.json", "not a tokenizer"]),
        (None, "{broken}", Rung.NONE, ["broken/tokenizer.json: not a tokenizer"]),
    ],
)
def test_a_rung_that_fails_falls_to_the_next_with_a_word(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    configured: str | None,
    tokenizer: str,
    rung: Rung,
    words: list[str],
) -> None:
    places = {
        "good": bundled_model_dir(),
        "empty": tmp_path / "empty",
        "broken": tmp_path / "broken",
    }
    places["empty"].mkdir()
    places["broken"].mkdir()
    (places["broken"] / "tokenizer.json").write_text("{}")
    snapshots = tmp_path / "hub" / "models--org--name" / "snapshots"
    snapshots.mkdir(parents=True)
    (snapshots / ("a" * 40)).symlink_to(bundled_model_dir())
    (snapshots.parent / "refs").mkdir()
    (snapshots.parent / "refs" / "main").write_text("a" * 40)
    table = {} if configured is None else {"m": Path(configured.format(**places))}
    shelf = PromptShelf(table, hub_cache=tmp_path / "hub")
    for _ in range(3):
        shelve(shelf, spec(tokenizer=tokenizer.format(**places)))
    found = shelf.shelved("m")
    assert found.rung is rung
    assert all(word in (found.detail or "") for word in words), found.detail
    told = "m has no tokenizer here" if rung is Rung.NONE else f"going by the {rung} rung"
    assert caplog.text.count(told) == 1  # not with every look


def test_workers_that_name_different_directories_are_learned_by_turns(tmp_path: Path) -> None:
    other = Path(shutil.copytree(bundled_model_dir(), tmp_path / "other"))
    shelf = PromptShelf({})
    one, two = spec(tokenizer=str(bundled_model_dir())), spec(tokenizer=str(other), worker="v")
    first, second = shelf.load(one).model, shelf.load(two).model
    assert first is not second
    assert (shelf.load(one).model, shelf.load(two).model) == (first, second)


@pytest.mark.parametrize(
    ("engines", "reads"),
    [
        ((EngineKind.VLLM,), True),
        ((EngineKind.UNKNOWN, EngineKind.VLLM), True),
        ((EngineKind.VLLM, EngineKind.SGLANG), False),
    ],
)
def test_ids_of_a_chat_are_taken_where_every_engine_reads_them(
    engines: tuple[EngineKind, ...], *, reads: bool
) -> None:
    shelf = PromptShelf({})
    shelve(shelf, *(spec(worker=f"w{n}", engine=kind) for n, kind in enumerate(engines)))
    body = b'{"messages": [], "kv_transfer_params": {"prompt_token_ids": [1]}}'
    assert _has_tokens(shelf, "m", body) is reads


def test_every_name_of_a_model_and_no_name_at_all() -> None:
    shelf = PromptShelf({"m": bundled_model_dir()})
    shelve(shelf, spec(aliases=("alias",), adapters=("lora",)))
    model = shelf.prompt_model("m")
    assert model is not None
    assert all(shelf.prompt_model(name) is model for name in ("alias", "lora", None))
    assert shelf.prompt_model("other") is None


def test_two_models_have_two_tokenizers_and_no_default() -> None:
    shelf = PromptShelf({"m": bundled_model_dir()})
    one, two = spec(), spec("n", aliases=("m",), worker="v")
    shelve(shelf, one, two)
    assert shelf.prompt_model(None) is None
    assert shelf.shelved("n").rung is Rung.CONFIGURED  # by its alias
    shelf.keep([one])
    assert shelf.shelved("n").rung is Rung.NONE
    assert shelf.prompt_model(None) is shelf.prompt_model("m")


def test_a_worker_without_a_tokenizer_takes_none_away() -> None:
    shelf = PromptShelf({})
    has, lacks = spec(tokenizer=str(bundled_model_dir())), spec(worker="v")
    shelve(shelf, has, lacks)
    assert shelf.shelved("m").rung is Rung.ENGINE
    assert shelf.prompt_model("m") is not None


def test_models_of_one_directory_are_loaded_once() -> None:
    shelf = PromptShelf({"m": bundled_model_dir(), "n": bundled_model_dir()})
    shelve(shelf, spec(), spec("n", worker="v"))
    assert shelf.prompt_model("m") is shelf.prompt_model("n")


def test_models_of_workers_that_went_make_room() -> None:
    shelf = PromptShelf({})
    for number in range(MAX_NAMES + 1):
        shelve(shelf, spec(f"m{number}", tokenizer=str(bundled_model_dir())))
    assert shelf.shelved(f"m{MAX_NAMES}").rung is Rung.ENGINE


@pytest.mark.parametrize(
    ("engines", "has_tokens"),
    [
        ((EngineKind.VLLM, EngineKind.UNKNOWN), True),
        ((EngineKind.SGLANG, EngineKind.SGLANG), False),
        ((EngineKind.VLLM, EngineKind.SGLANG), False),
    ],
)
def test_a_chat_that_engines_render_differently_has_no_tokens_where_sglang_serves_it(
    engines: tuple[EngineKind, EngineKind], *, has_tokens: bool
) -> None:
    shelf = PromptShelf({"m": bundled_model_dir(), "other": bundled_model_dir()})
    first, second = engines
    shelve(shelf, spec(engine=first), spec(worker="w2", engine=second), spec("other", worker="w3"))
    part = b'{"type": "text", "text": "hi"}'
    parts = b'{"messages": [{"role": "user", "content": [%b, %b]}]}' % (part, part)
    plain = b'{"messages": [{"role": "user", "content": "hi"}]}'
    found = [
        _has_tokens(shelf, name, body)
        for name, body in (("m", parts), ("m", plain), ("other", parts))
    ]
    assert found == [has_tokens, True, True]


def _has_tokens(shelf: PromptShelf, name: str, body: bytes) -> bool:
    model = shelf.prompt_model(name)
    assert model is not None
    with contextlib.suppress(NoTokensError):
        return bool(model.prompt_tokens(view_request(Api.CHAT, body)).tokens)
    return False
