"""LoRA adapters of a simulated SGLang: their names, and the namespaces of the cache that they make.

An adapter's id is the end of the extra key of its requests, so its pages are apart from the base model's, and from
those of other adapters; the tree core renames their hashes and publishes the adapter's name.

Source: SGLang 0.5.23 ``--lora-paths`` (form, ids).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5

MAX_ADAPTERS = 64


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter; nothing is ever read from ``path``."""

    name: str
    path: str

    @property
    def id(self) -> str:
        """32 hexadecimal digits; the same in every worker that names name and path alike."""
        return uuid5(NAMESPACE_URL, f"{self.name}\0{self.path}").hex

    def extra_key(self, own: str | None) -> str:
        """The extra key of a request for it that has ``own`` besides."""
        return (own or "") + self.id

    def server_info(self) -> dict[str, object]:
        """As ``/server_info`` lists it."""
        return {
            "lora_id": self.id,
            "lora_name": self.name,
            "lora_path": self.path,
            "pinned": False,
        }


def parse_adapters(texts: Iterable[str]) -> Mapping[str, Adapter]:
    """Adapters by name, each from ``NAME=PATH``, or from a path that is its name too.

    Raises:
        ValueError: a name is empty, has a colon, or comes twice, or there are too many.
    """
    adapters: dict[str, Adapter] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not name or ":" in name or (equals and not path):
            raise ValueError("NAME=PATH, or PATH, without a colon in the name")
        if name in adapters:
            raise ValueError(f"{name} twice")
        adapters[name] = Adapter(name, path or name)
    if len(adapters) > MAX_ADAPTERS:
        raise ValueError(f"{MAX_ADAPTERS} at most")
    return adapters
