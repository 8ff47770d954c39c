"""Models in a local hub cache, as Hugging Face's libraries lay it out. Nothing is ever downloaded.

    <cache>/models--<org>--<name>/refs/main                 the commit that the name stands for
    <cache>/models--<org>--<name>/snapshots/<commit>/…      its files

A model is asked for by its hub id, or by the path of a snapshot in another machine's cache, which names the very
commit. Only a snapshot that holds a tokenizer counts: an engine that was served from elsewhere may have left others.
"""

import re
from collections.abc import Mapping
from pathlib import Path

_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
_SNAPSHOT = re.compile(r"/models--([^/]+)/snapshots/([0-9a-f]{7,64})/?$")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_MAX_ID = 200


def default_hub_cache(environ: Mapping[str, str], home: Path) -> Path:
    """Where Hugging Face's libraries keep models.

    Source: huggingface_hub 2.4 (``HF_HUB_CACHE``, ``HUGGINGFACE_HUB_CACHE``, ``HF_HOME``, ``XDG_CACHE_HOME``).
    """
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root).expanduser() if root else home / ".cache") / "huggingface" / "hub"


def hub_snapshot(cache: Path, name: str) -> Path | None:
    """The snapshot of a model with a tokenizer in it; None where there is none. A few looks at the disk.

    Args:
        name: hub id (``org/name``), or a path that ends in ``models--org--name/snapshots/<commit>``.
    """
    elsewhere = _SNAPSHOT.search(name)
    if elsewhere is not None:
        folder, commit = elsewhere.groups()
        return _with_tokenizer(cache / f"models--{folder}" / "snapshots" / commit)
    if len(name) > _MAX_ID or not _ID.fullmatch(name) or "--" in name or ".." in name:
        return None
    folder = f"models--{name.replace('/', '--')}"
    try:
        commit = (cache / folder / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not _COMMIT.fullmatch(commit):
        return None
    return _with_tokenizer(cache / folder / "snapshots" / commit)


def _with_tokenizer(snapshot: Path) -> Path | None:
    try:
        return snapshot if (snapshot / "tokenizer.json").is_file() else None
    except OSError:
        return None
