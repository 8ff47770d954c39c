"""What the router says of its workers, for people who ask why one of them is not in a decision."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, TypeAdapter

SERVING = "serving"


class WorkerNote(BaseModel):
    """One worker in short. ``model`` is None until it has been learned."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    worker: str
    state: str
    model: str | None = None
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    error: str | None = None

    def names(self) -> Iterator[str]:
        """Every model name that requests may use."""
        if self.model is not None:
            yield self.model
        yield from self.aliases
        yield from self.adapters


WORKER_NOTES = TypeAdapter(list[WorkerNote])


def served(notes: Sequence[WorkerNote]) -> list[str]:
    """The model names of all workers, each once."""
    return sorted({name for note in notes for name in note.names()})


def absences(notes: Sequence[WorkerNote]) -> list[str]:
    """A line for each worker that does not serve."""
    return [_absence(note) for note in notes if note.state != SERVING]


def _absence(note: WorkerNote) -> str:
    state = "not learned yet" if note.model is None else note.state
    return f"{note.worker}: {state}" + (f" ({note.error})" if note.error else "")
