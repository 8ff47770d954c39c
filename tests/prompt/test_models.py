import shutil
from pathlib import Path

import pytest

from prompt import PromptModelError, PromptModels, TokenizerChoice, bundled_model_dir
from prompt.models import MAX_NAMES


def test_names_find_their_models_and_aliases_share_one(tmp_path: Path) -> None:
    other = Path(shutil.copytree(bundled_model_dir(), tmp_path / "other"))
    models = PromptModels(tokenizer=TokenizerChoice.HF)
    first = models.add("m1", bundled_model_dir())
    second = models.add("m2", other)
    assert models.add("alias", bundled_model_dir()) is first
    assert (models.get("m1"), models.get("m2"), models.get("m3")) == (first, second, None)
    assert models.names() == ["m1", "m2", "alias"]
    assert first is not second
    assert first.backend == "tokenizers"


def test_a_fault_is_raised_and_kept_until_the_name_loads(tmp_path: Path) -> None:
    models = PromptModels()
    with pytest.raises(PromptModelError):
        models.add("m", tmp_path)
    assert models.get("m") is None
    assert "tokenizer.json" in (models.fault("m") or "")
    assert models.fault("never tried") is None
    models.add("m", bundled_model_dir())
    assert models.fault("m") is None


def test_what_was_mended_is_loaded_anew(tmp_path: Path) -> None:
    place = Path(shutil.copytree(bundled_model_dir(), tmp_path / "m"))
    models = PromptModels(tokenizer=TokenizerChoice.HF)
    first = models.add("m", place)
    assert models.add("m", place) is first
    (place / "chat_template.jinja").write_text("{{ messages[0].content }}")
    second = models.add("m", place)
    assert second is models.get("m")
    assert second is not first
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    assert (second.render_chat(chat), first.render_chat(chat) != "hi") == ("hi", True)
    (place / "tokenizer.json").write_text("{}")
    with pytest.raises(PromptModelError):
        models.add("m", place)
    assert models.get("m") is second  # until something better comes


def test_of_a_name_the_last_directories_are_kept(tmp_path: Path) -> None:
    models = PromptModels(tokenizer=TokenizerChoice.HF)
    places = [Path(shutil.copytree(bundled_model_dir(), tmp_path / str(n))) for n in range(5)]
    loaded = [models.add("m", place) for place in places]
    again = [models.add("m", place) for place in places[1:]]
    assert again == loaded[1:]
    assert models.add("m", places[0]) is not loaded[0]
    models.keep(())
    assert models.names() == []


def test_the_number_of_names_is_limited(tmp_path: Path) -> None:
    models = PromptModels(tokenizer=TokenizerChoice.HF)
    for number in range(MAX_NAMES):
        models.add(f"m{number}", bundled_model_dir())
    with pytest.raises(PromptModelError, match="more than 256 model names"):
        models.add("one more", bundled_model_dir())
    assert models.add("m0", bundled_model_dir()) is models.get("m1")


def test_names_that_are_not_kept_make_room(tmp_path: Path) -> None:
    models = PromptModels(tokenizer=TokenizerChoice.HF)
    kept = models.add("kept", bundled_model_dir())
    models.add("m", bundled_model_dir())
    for number in range(MAX_NAMES - 2):
        with pytest.raises(PromptModelError):
            models.add(f"fault {number}", tmp_path)
    models.keep({"kept", "fault 0", "never seen"})
    assert models.names() == ["kept"]
    assert models.fault("fault 0")
    assert models.fault("fault 1") is None
    assert models.add("one more", bundled_model_dir()) is kept
