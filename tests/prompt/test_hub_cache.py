"""Snapshots are found as Hugging Face's own library finds them."""

from pathlib import Path

import pytest

from prompt.hub_cache import default_hub_cache, hub_snapshot
from tests import needs

COMMIT, OTHER = "0123456789abcdef0123456789abcdef01234567", "f" * 40
HOME = Path("/home/u")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one model in two commits, one without an organisation, and one without a tokenizer."""
    for folder, commit in (
        ("models--org--name", COMMIT),
        ("models--org--name", OTHER),
        ("models--solo", COMMIT),
    ):
        snapshot = tmp_path / folder / "snapshots" / commit
        snapshot.mkdir(parents=True)
        blob = tmp_path / folder / "blobs" / "b1"
        blob.parent.mkdir(exist_ok=True)
        blob.write_text("{}")
        (snapshot / "tokenizer.json").symlink_to(blob)
        (tmp_path / folder / "refs").mkdir(exist_ok=True)
        (tmp_path / folder / "refs" / "main").write_text(COMMIT)
    bare = tmp_path / "models--org--bare"
    (bare / "snapshots" / COMMIT).mkdir(parents=True)
    (bare / "refs").mkdir()
    (bare / "refs" / "main").write_text(COMMIT)
    broken = tmp_path / "models--org--broken" / "refs"
    broken.mkdir(parents=True)
    (broken / "main").write_text("../../elsewhere")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("org/name", f"models--org--name/snapshots/{COMMIT}"),
        ("solo", f"models--solo/snapshots/{COMMIT}"),
        (f"/root/.cache/hub/models--org--name/snapshots/{OTHER}", f"models--org--name/snapshots/{OTHER}"),
        (f"/x/models--org--name/snapshots/{'a' * 40}", None),
        ("org/bare", None),
        ("org/broken", None),
        ("org/absent", None),
        ("org--name", None),
        ("../models--org--name", None),
        ("org/../name", None),
        ("/models/name", None),
        ("a" * 300, None),
        ("", None),
        ("org/na\x00me", None),
    ],
)  # fmt: skip
def test_what_is_found(cache: Path, name: str, found: str | None) -> None:
    assert hub_snapshot(cache, name) == (None if found is None else cache / found)
    assert hub_snapshot(cache / "nowhere", name) is None


@pytest.mark.parametrize("name", ["org/name", "solo", "org/bare", "org/absent"])
def test_the_library_of_the_hub_finds_the_same(cache: Path, name: str) -> None:
    hub = needs.module("huggingface_hub", extra="test")
    theirs = hub.try_to_load_from_cache(name, "tokenizer.json", cache_dir=cache)
    ours = hub_snapshot(cache, name)
    assert (str(ours / "tokenizer.json") if ours else None) == theirs


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, HOME / ".cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x"}, Path("/x/huggingface/hub")),
        ({"XDG_CACHE_HOME": "/x", "HF_HOME": "/h"}, Path("/h/hub")),
        ({"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/o"}, Path("/o")),
        ({"HF_HUB_CACHE": "/c", "HUGGINGFACE_HUB_CACHE": "/o"}, Path("/c")),
        ({"HF_HUB_CACHE": ""}, HOME / ".cache/huggingface/hub"),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], expected: Path) -> None:
    assert default_hub_cache(environ, HOME) == expected
