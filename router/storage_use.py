"""Which storage pool an engine writes to and fetches from, by what it says of itself.

An engine names its backend, and in the backend's extra configuration perhaps where it is. Only an address makes
a pool shared: what lies in the engine's environment cannot be known, and an address of one's own machine is
another one on every machine. Where nothing is known to be shared the operator can name the pool.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from xxhash import xxh3_64_hexdigest

from protocol import PoolName, StoragePool, StorageUse, WorkerSpec
from router.answer_fields import MAX_LENGTH, AnswerFields, fields_of

_ADDRESS_FIELDS = {
    "mooncake": "master_server_address",
    "hf3fs": "metadata_server_url",
    "file": "directory",
}
"""Backend → field of the extra configuration that says where it is."""
_OF_THE_WORKER_ALONE = frozenset(
    (
        *("prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token"),
        *("global_segment_size", "local_buffer_size", "local_hostname", "device_name"),
    )
)
"""Fields of the extra configuration that workers of one pool may differ in."""
_WRITES_THROUGH = ("write_through", "write_through_selective")
_MAX_EXTRA = 16 * 1024


def sglang_storage(
    info: Mapping[str, object], url: str, model: str, read: AnswerFields
) -> tuple[StorageUse | None, int | None]:
    """What an SGLang worker does with which pool, and its prefetch threshold; None where it says nothing.

    The pool has no address where none is known that others may share.

    Source: SGLang 0.5.23 ``ServerArgs``; extra configuration as JSON or, as a path, not known.
    """
    backend = read.text(info.get("hicache_storage_backend"), "hicache_storage_backend")
    if backend is None or info.get("enable_hierarchical_cache") is False:
        return None, None
    extra = _extra_fields(info.get("hicache_storage_backend_extra_config"), read)
    threshold = read.size(extra.get("prefetch_threshold"), "prefetch_threshold", MAX_LENGTH)
    pool = StoragePool(
        name=None,
        backend=backend,
        address=_address(backend, extra, url, read),
        model=model,
        layout=_layout(info, read),
        namespace=_namespace(info, extra, _ADDRESS_FIELDS.get(backend)),
    )
    return StorageUse(pool, info.get("hicache_write_policy") in _WRITES_THROUGH), threshold


def with_named_pool(spec: WorkerSpec, name: PoolName) -> WorkerSpec:
    """The worker in a pool that the operator names; whatever else it tells still tells pools apart."""
    told = spec.storage
    if told is None:
        layout = f"block_size={spec.block_size}"
        use = StorageUse(StoragePool(name, None, None, spec.model, layout, ""))
    else:
        use = replace(told, pool=replace(told.pool, name=name, address=None))
    return replace(spec, storage=use)


def _extra_fields(value: object, read: AnswerFields) -> Mapping[str, object]:
    """The extra configuration: an object, or the text of one."""
    if not isinstance(value, str):
        return fields_of(value)
    if value.startswith("@") or not value:
        return {}
    if len(value) > _MAX_EXTRA:
        read.fault("hicache_storage_backend_extra_config: too long")
        return {}
    try:
        return fields_of(json.loads(value))
    except (ValueError, RecursionError):
        read.fault("hicache_storage_backend_extra_config: not JSON")
        return {}


def _address(backend: str, extra: Mapping[str, object], url: str, read: AnswerFields) -> str | None:
    field = _ADDRESS_FIELDS.get(backend)
    address = None if field is None else read.text(extra.get(field), str(field))
    if address is None:
        return None
    if field == "directory" or _is_own_machine(address):
        return f"{urlsplit(url).hostname}:{address}"
    return address


def _is_own_machine(address: str) -> bool:
    """Whether the address means another machine to everybody."""
    try:
        host = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return True
    try:
        found = ip_address(host)
    except ValueError:
        return host in ("", "localhost")
    return found.is_loopback or found.is_unspecified


def _layout(info: Mapping[str, object], read: AnswerFields) -> str:
    """How blocks are cut: other layouts cannot be read, or lie under other keys."""
    parts = []
    for name in ("page_size", "tp_size", "pp_size", "kv_cache_dtype", "hicache_mem_layout"):
        value = info.get(name)
        told = str(value) if isinstance(value, int) else read.text(value, name)
        if told is not None and told not in ("auto", "1"):
            parts.append(f"{name}={told[:64]}")
    if info.get("enable_dp_attention") is True:
        parts.append(f"dp_attention={_count(info.get('dp_size'))}")
    return " ".join(parts)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _namespace(
    info: Mapping[str, object], extra: Mapping[str, object], address_field: str | None
) -> str:
    """A digest, for the extra configuration may hold what nobody should read."""
    weights = {name: info.get(name) for name in ("model_path", "revision", "dtype", "quantization")}
    own = _OF_THE_WORKER_ALONE | {address_field}
    rest = {name: value for name, value in extra.items() if name not in own}
    text = json.dumps([weights, rest], sort_keys=True, default=str)
    return xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))
