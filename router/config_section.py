"""A section of the configuration: a field that it does not know is refused by its name, and it never changes."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """What every section is."""

    model_config = ConfigDict(extra="forbid", frozen=True)
