"""Which paths are for clients, and which administer engines or show what others do.

Closed: a path that is not known to be for clients is not. Engines have no other wall between the two, and grow new
paths with every release.

Source: routes of SGLang 0.5.23 and vLLM 0.33.0.
"""

from collections.abc import Iterable

from router.headers import RawHeader

_API = "/v1/"
_ADMINISTRATION = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/loads"})
_OTHERS = frozenset(
    {
        "/generate",
        "/tokenize",
        "/detokenize",
        "/score",
        "/rerank",
        "/v2/rerank",
        "/v2/embed",
        "/pooling",
        "/classify",
        "/encode",
    }
)
_PROBES = frozenset({"/health", "/ready"})
_PREFLIGHT = b"access-control-request-method"


def is_for_clients(path: str) -> bool:
    """Is it a path that serves requests? ``path`` is decoded; one with empty or dotted segments is none."""
    route = path.removesuffix("/")
    if route.startswith(_API):
        is_plain = not {"", ".", ".."} & set(route.split("/")[1:]) and "\\" not in route
        return is_plain and route not in _ADMINISTRATION
    return route in _OTHERS


def needs_no_key(method: str, path: str, headers: Iterable[RawHeader]) -> bool:
    """Is it a probe of the router, or a browser's question whether it may ask, which never has a key?"""
    if method == "OPTIONS":
        names = {name for name, _ in headers}
        return _PREFLIGHT in names and b"origin" in names
    return path.removesuffix("/") in _PROBES
