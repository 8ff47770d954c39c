"""What names a Mooncake store, and what a router learns from it."""

import json
from pathlib import Path

import pytest

from protocol import StoragePool, WorkerId
from router.discovery import WorkerAnswers, describe_worker
from worker.config import WorkerConfig
from worker.mooncake_address import MooncakeAddress
from worker.mooncake_client import MooncakeUnavailableError, open_mooncake
from worker.server_info import WorkerIdentity

MASTER = "mooncake://10.0.0.9:50051"


def pool_of(storage: str) -> StoragePool:
    """As a router learns it from what a worker with that storage says of itself."""
    config = WorkerConfig(storage=storage)
    info = WorkerIdentity(config, Path("/tokenizer"), None, None, 0).server_info()
    spec = describe_worker(WorkerId("w"), "http://127.0.0.1:8000", WorkerAnswers(server_info=info))
    assert spec.spec.storage is not None
    return spec.spec.storage.pool


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MASTER, MooncakeAddress("10.0.0.9:50051", "http://10.0.0.9:8080/metadata")),
        ("mooncake://[::1]:5/", MooncakeAddress("[::1]:5", "http://[::1]:8080/metadata")),
        (
            MASTER + "?metadata=P2PHANDSHAKE&segment_mb=8&local=10.0.0.7",
            MooncakeAddress("10.0.0.9:50051", "P2PHANDSHAKE", 8, "10.0.0.7"),
        ),
        (
            MASTER + "?metadata=http://10.0.0.8:81/metadata",
            MooncakeAddress("10.0.0.9:50051", "http://10.0.0.8:81/metadata"),
        ),
    ],
)
def test_an_address_names_master_metadata_and_what_is_brought(
    text: str, expected: MooncakeAddress
) -> None:
    assert MooncakeAddress.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mooncake://", "HOST:PORT"),
        ("mooncake://host", "HOST:PORT"),
        ("mooncake://host:99999", "Port out of range"),
        ("mooncake://host:1/path", "nothing else"),
        ("mooncake://me@host:1", "nothing else"),
        ("mooncake://host:1?size=3", "no size"),
        ("mooncake://host:1?segment_mb=0", "segment_mb"),
        ("mooncake://host:1?segment_mb=²", "segment_mb"),
        ("mooncake://host:1?metadata=etcd://host", "metadata"),
    ],
)
def test_a_wrong_address_is_refused_by_the_configuration(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        WorkerConfig(storage=text)


def test_workers_of_one_master_share_a_pool_whatever_they_bring() -> None:
    ours = pool_of(MASTER)
    assert (ours.backend, ours.address) == ("mooncake", "10.0.0.9:50051")
    assert ours == pool_of(MASTER + "?segment_mb=8&local=10.0.0.7")
    assert ours != pool_of("mooncake://10.0.0.10:50051")


def test_server_info_names_the_store_as_sglang_does() -> None:
    config = WorkerConfig(storage=MASTER + "?segment_mb=1")
    info = WorkerIdentity(config, Path("/tokenizer"), None, None, 0).server_info()
    assert info["hicache_storage_backend"] == "mooncake"
    assert json.loads(info["hicache_storage_backend_extra_config"]) == {
        "prefetch_threshold": 256,
        "master_server_address": "10.0.0.9:50051",
        "metadata_server": "http://10.0.0.9:8080/metadata",
        "protocol": "tcp",
        "global_segment_size": 1 << 20,
    }


def test_a_store_that_cannot_be_opened_says_what_is_missing() -> None:
    """The package, its libraries, or the master."""
    with pytest.raises(
        MooncakeUnavailableError, match=r"pip install|apt-get|no mooncake_master at"
    ):
        open_mooncake(MooncakeAddress.parse("mooncake://127.0.0.1:1"))
