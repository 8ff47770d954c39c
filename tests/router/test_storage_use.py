"""Which workers share a storage pool, by what their engines say and by what the operator names."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import PoolName, StorageUse, WorkerId, WorkerSpec
from router.discovery import WorkerAnswers, describe_worker
from router.storage_use import with_named_pool
from tests.router.worker_answers import MODELS, SGLANG
from worker.config import WorkerConfig
from worker.server_info import WorkerIdentity

HICACHE = SGLANG | {
    "tp_size": 2,
    "enable_hierarchical_cache": True,
    "hicache_write_policy": "write_through",
    "hicache_storage_backend": "mooncake",
    "hicache_storage_backend_extra_config": '{"master_server_address": "10.0.0.9:50051"}',
}
MASTER = {"master_server_address": "10.0.0.9:50051"}


def describe(fields: Mapping[str, object], host: str = "10.1.2.3") -> WorkerSpec:
    answers = WorkerAnswers(server_info={**HICACHE, **fields})
    return describe_worker(WorkerId(host), f"http://{host}:8000", answers).spec


def used(fields: Mapping[str, object], host: str = "10.1.2.3") -> StorageUse | None:
    """The storage of a worker, where it is known to be shared."""
    return shared(describe(fields, host))


def shared(spec: WorkerSpec) -> StorageUse | None:
    return spec.storage if spec.storage is not None and spec.storage.pool.is_shared else None


def extra(**fields: object) -> dict[str, object]:
    return {"hicache_storage_backend_extra_config": json.dumps(fields)}


def test_a_network_address_makes_a_pool() -> None:
    use = used({})
    assert use is not None
    pool = use.pool
    assert (pool.name, pool.backend, pool.address) == (None, "mooncake", "10.0.0.9:50051")
    assert (pool.model, pool.layout) == ("big", "page_size=64 tp_size=2")
    assert use.writes_through
    assert used({}, "10.1.2.4") == use


@pytest.mark.parametrize(
    ("fields", "host"),
    [
        (extra(master_server_address="10.0.0.8:50051"), "10.1.2.3"),
        (extra(**MASTER, tenant_id="blue"), "10.1.2.3"),
        ({"tp_size": 4}, "10.1.2.3"),
        ({"page_size": 32}, "10.1.2.3"),
        ({"kv_cache_dtype": "fp8_e5m2"}, "10.1.2.3"),
        ({"enable_dp_attention": True}, "10.1.2.3"),
        ({"model_path": "/models/other"}, "10.1.2.3"),
        ({"served_model_name": "other"}, "10.1.2.3"),
        ({"hicache_storage_backend": "hf3fs"} | extra(metadata_server_url="http://10.0.0.9:1"), "a"),
    ],
)  # fmt: skip
def test_what_tells_pools_apart(fields: dict[str, object], host: str) -> None:
    first, second = used({}), used(fields, host)
    assert first is not None
    assert second is not None
    assert first.pool != second.pool
    assert first.pool.label != second.pool.label


@pytest.mark.parametrize(
    "fields",
    [
        extra(**MASTER, prefetch_threshold=64),
        extra(**MASTER, global_segment_size="4gb", local_hostname="10.1.2.4", device_name="mlx5"),
        {"hicache_write_policy": "write_through_selective"},
        {"hicache_storage_backend_extra_config": MASTER},
        {"kv_cache_dtype": "auto", "pp_size": 1},
    ],
)
def test_what_does_not(fields: dict[str, object]) -> None:
    first, second = used({}), used(fields, "10.1.2.4")
    assert first == second


@pytest.mark.parametrize(
    "fields",
    [
        {"hicache_storage_backend": None},
        {"enable_hierarchical_cache": False},
        {"hicache_storage_backend": "file", "hicache_storage_backend_extra_config": None},
        {"hicache_storage_backend_extra_config": "@/etc/extra.toml"},
        {"hicache_storage_backend_extra_config": "{"},
        {"hicache_storage_backend_extra_config": "[" * 10_000},
        {"hicache_storage_backend_extra_config": " " * 20_000},
        extra(master_server_address=7),
        extra(master_server_address="a\x00b"),
        {"hicache_storage_backend": "nixl"} | extra(**MASTER),
        {"hicache_storage_backend": "memory"} | extra(directory="/cache"),
    ],
)
def test_what_is_not_known_to_be_shared_is_not(fields: dict[str, object]) -> None:
    assert used(fields) is None


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:50051", "localhost:50051", "http://127.0.0.1:1", "[::1]:1", "0.0.0.0:1", ":1", "[:"],
)  # fmt: skip
def test_an_address_of_ones_own_machine_is_another_one_on_every_machine(address: str) -> None:
    fields = extra(master_server_address=address)
    here, too, there = used(fields), used(fields), used(fields, "10.1.2.4")
    assert here == too
    assert here is not None
    assert there is not None
    assert here.pool != there.pool


def test_a_directory_is_of_one_machine() -> None:
    fields = {"hicache_storage_backend": "file"} | extra(directory="/cache")
    assert used(fields) == used(fields)
    assert used(fields) != used(fields, "10.1.2.4")


def test_only_engines_that_write_through_do() -> None:
    for policy in ("write_back", None, 3):
        use = used({"hicache_write_policy": policy})
        assert use is not None
        assert not use.writes_through


def test_the_prefetch_threshold_is_the_workers_own() -> None:
    assert describe(extra(**MASTER, prefetch_threshold=64)).fetch_threshold == 64
    assert describe({}).fetch_threshold == 256
    assert describe(extra(**MASTER, prefetch_threshold=-1)).fetch_threshold == 256


def test_a_named_pool_is_shared_whatever_the_address() -> None:
    unproven = {"hicache_storage_backend": "file", "hicache_storage_backend_extra_config": None}
    name = PoolName("l3")
    here = with_named_pool(describe(unproven), name).storage
    there = with_named_pool(describe(unproven, "10.1.2.4"), name).storage
    assert here == there
    assert here is not None
    assert (here.pool.name, here.pool.address, here.writes_through) == ("l3", None, True)
    other_layout = with_named_pool(describe({**unproven, "tp_size": 4}), name).storage
    assert other_layout != here
    assert with_named_pool(describe(unproven), PoolName("l4")).storage != here


def test_a_named_pool_of_an_engine_that_tells_nothing() -> None:
    answers = WorkerAnswers(models=MODELS, version={"version": "0.32.0"})
    found = describe_worker(WorkerId("v"), "http://v:1", answers).spec
    assert found.storage is None
    use = with_named_pool(found, PoolName("l3")).storage
    assert use is not None
    assert (use.pool.name, use.pool.model, use.writes_through) == ("l3", "tiny", False)


def simulated(storage: str, **fields: object) -> StorageUse | None:
    config = WorkerConfig.model_validate({"storage": storage, **fields})
    info = WorkerIdentity(config, Path("/tokenizer"), None, None, 0).server_info()
    answers = WorkerAnswers(server_info=json.loads(json.dumps(info)))
    return shared(describe_worker(WorkerId("s"), "http://127.0.0.1:8000", answers).spec)


def test_simulated_workers_share_a_directory_and_nothing_else(tmp_path: Path) -> None:
    use = simulated(f"dir:{tmp_path}", prefetch_threshold=64)
    assert use is not None
    assert use == simulated(f"dir:{tmp_path}/../{tmp_path.name}")
    assert use.writes_through
    assert use.pool.address == f"127.0.0.1:{tmp_path.resolve()}"
    assert simulated(f"dir:{tmp_path}/other") != use
    assert simulated(f"dir:{tmp_path}", page_size=32) != use
    assert simulated("memory") is None
    assert simulated("none") is None
    back = simulated(f"dir:{tmp_path}", write_policy="write_back")
    assert back is not None
    assert not back.writes_through


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from([*HICACHE, "kv_cache_dtype", "revision", "dtype", "hicache_mem_layout"]),
        odd,
    ),
    odd,
)
def test_odd_answers_break_nothing(fields: dict[str, object], address: object) -> None:
    fields.pop("disaggregation_mode", None)
    for field in ("dp_size", "kv_events", "served_model_name"):
        fields.pop(field, None)
    use = used(
        {**fields, "hicache_storage_backend_extra_config": {"master_server_address": address}}
    )
    if use is not None:
        json.dumps([use.pool.label, use.pool.address, use.pool.layout]).encode()
