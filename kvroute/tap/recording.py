"""A stream written down as it came: a line a message, and beside it the state that it leads to.

One file a rank. A line is ``{"t", "phase", "kind", "frames_hex", "topic", "seq", "decoded"}``: ``frames_hex`` the
raw frames, ``decoded`` the batch as the engine wrote it. ``kind`` is ``pub`` for every batch, replayed ones
among them as the PUB socket sent them; what cannot be read has another kind and no ``decoded``. Lines are
written at once, the state (``NAME.expected.json``) at the end. Files hold token ids, which are prompts.
"""

from collections.abc import Sequence
from io import BufferedWriter
from pathlib import Path

import msgpack
import orjson

from kvroute.tap.fold import Fold
from kvroute.tap.heard import Batch, Heard


class Recording:
    """One rank's recording. Opened for a new file only.

    Raises:
        OSError: the file exists, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BufferedWriter = path.open("xb")
        self._fold = Fold()

    @property
    def expected_path(self) -> Path:
        """Where the state goes."""
        return self.path.with_name(f"{self.path.stem}.expected.json")

    def add(self, heard: Heard) -> None:
        """Write a batch, or a note that holds frames; other notes leave no trace.

        Raises:
            OSError: it cannot be written.
        """
        if isinstance(heard, Batch):
            message = heard.message
            frames = (message.topic, message.seq.to_bytes(8, "big"), message.payload)
            self._write(heard.at, "pub", frames, _decoded(message.payload))
            self._fold.apply(heard)
        elif heard.frames:
            self._write(heard.at, heard.kind, heard.frames, None)

    def close(self) -> None:
        """Write the state and close the file. Idempotent.

        Raises:
            OSError: it cannot be written.
        """
        if not self._file.closed:
            self._file.close()
            expected = self._fold.expected(self.path.stem)
            self.expected_path.write_bytes(orjson.dumps(expected, option=orjson.OPT_INDENT_2))

    def _write(self, at: float, kind: str, frames: Sequence[bytes], decoded: object) -> None:
        line: dict[str, object] = {
            "t": at,
            "phase": "tap",
            "kind": kind,
            "frames_hex": [frame.hex() for frame in frames],
        }
        if kind == "pub":
            line |= {
                "topic": frames[0].decode("utf-8", "replace"),
                "seq": int.from_bytes(frames[1], "big"),
                "decoded": decoded,
            }
        self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()


class Recordings:
    """A recording a rank, opened as ranks are heard: the only one at ``path``, else ``…_rankN`` beside it.

    Args:
        has_ranks: more than one rank is to be expected.
    """

    def __init__(self, path: Path, *, has_ranks: bool) -> None:
        self._path = path
        self._has_ranks = has_ranks
        self._of_rank: dict[int, Recording] = {}

    @property
    def paths(self) -> list[Path]:
        """Every file with frames."""
        return [one.path for one in self._of_rank.values()]

    def add(self, heard: Heard) -> None:
        """Write what was heard; what belongs to no rank goes to the first one's file, if there is one.

        Raises:
            OSError: it cannot be written, or its file exists.
        """
        if heard.dp_rank is not None:
            self._recording(heard.dp_rank).add(heard)
        elif self._of_rank:
            next(iter(self._of_rank.values())).add(heard)

    def close(self) -> None:
        """Write every state, close every file. Idempotent.

        Raises:
            OSError: one cannot be written.
        """
        for one in self._of_rank.values():
            one.close()

    def _recording(self, dp_rank: int) -> Recording:
        found = self._of_rank.get(dp_rank)
        if found is None:
            is_alone = not self._has_ranks and not self._of_rank
            name = self._path.name if is_alone else f"{self._path.stem}_rank{dp_rank}.jsonl"
            found = self._of_rank[dp_rank] = Recording(self._path.with_name(name))
        return found


def _decoded(payload: bytes) -> orjson.Fragment:
    """A readable payload as the engine wrote it; null where it holds what JSON cannot (nested too deeply)."""
    try:
        raw = msgpack.unpackb(payload, strict_map_key=False, unicode_errors="replace")
        return orjson.Fragment(orjson.dumps(_as_json(raw)))
    except (TypeError, RecursionError):
        return orjson.Fragment(b"null")


def _as_json(value: object) -> object:
    """What msgpack holds, with bytes as ``{"__bytes__": hex}`` and only text for names."""
    if isinstance(value, bytes):
        return {"__bytes__": value.hex()}
    if isinstance(value, list):
        return [_as_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _as_json(one) for name, one in value.items()}
    return value
