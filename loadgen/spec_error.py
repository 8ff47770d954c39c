"""Sizes that do not go together."""


class SpecError(ValueError):
    """One field of a specification is wrong.

    Attributes:
        field: its name.
        what: what it must be.
    """

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"{field}: {what}")
        self.field = field
        self.what = what
