"""What a worker is, from what its routes answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from protocol import EngineKind, EventSource, Rank, WorkerSpec
from router.discovery import (
    Discovered,
    NamedEvents,
    NotAWorkerError,
    WorkerAnswers,
    with_named_events,
)
from tests.router.worker_answers import MODELS, SGLANG, W, describe

DATA = Path(__file__).parents[1] / "data"


def test_sglang_says_everything_in_one_place() -> None:
    models = {"data": [{"id": "big", "root": "big", "parent": None, "max_model_len": 32768}]}
    spec = describe(WorkerAnswers(models=models, server_info=SGLANG)).spec
    assert spec.engine is EngineKind.SGLANG
    assert (spec.model, spec.version, spec.tokenizer) == ("big", "0.5.23", "/models/big")
    assert (spec.block_size, spec.num_ranks, spec.max_model_len) == (128, 2, 32768)
    assert spec.sources == (
        EventSource(Rank(W, 0), "tcp://10.1.2.3:5557", "tcp://10.1.2.3:5577", "kv"),
        EventSource(Rank(W, 1), "tcp://10.1.2.3:5558", "tcp://10.1.2.3:5578", "kv"),
    )


def test_sglang_without_events_and_without_models() -> None:
    info = {name: value for name, value in SGLANG.items() if name != "kv_events"}
    spec = describe(WorkerAnswers(server_info=info)).spec
    assert (spec.model, spec.block_size, spec.sources, spec.num_ranks) == ("big", 64, (), 2)


@pytest.mark.parametrize("mode", ["buffer_only", "cache", None, 7])
def test_whether_host_memory_only_stages(mode: object) -> None:
    found = describe(WorkerAnswers(server_info=SGLANG | {"hicache_host_memory_mode": mode}))
    assert found.spec.stages_on_host is (mode == "buffer_only")


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_half_an_engine_is_refused(mode: str) -> None:
    with pytest.raises(NotAWorkerError, match=f"{mode}-only"):
        describe(WorkerAnswers(server_info=SGLANG | {"disaggregation_mode": mode}))


def test_a_whole_engine_says_null() -> None:
    describe(WorkerAnswers(server_info=SGLANG | {"disaggregation_mode": "null"}))


@pytest.mark.parametrize(
    ("host", "url", "expected"),
    [
        ("*", "http://10.1.2.3:8000", "tcp://10.1.2.3:5557"),
        ("0.0.0.0", "http://engine-0.engines:8000", "tcp://engine-0.engines:5557"),
        ("::", "http://[fd00::1]:8000", "tcp://[fd00::1]:5557"),
        ("10.9.9.9", "http://10.1.2.3:8000", "tcp://10.9.9.9:5557"),
        ("fd00::2", "http://10.1.2.3:8000", "tcp://[fd00::2]:5557"),
    ],
)  # fmt: skip
def test_wildcard_hosts_are_the_workers_own(host: str, url: str, expected: str) -> None:
    events = SGLANG["kv_events"] | {"endpoint_host": host}  # type: ignore[operator]
    spec = describe(WorkerAnswers(server_info=SGLANG | {"kv_events": events}), url).spec
    assert spec.sources[0].endpoint == expected


def test_vllm_as_recorded() -> None:
    lines = json.loads((DATA / "vllm" / "http_surface.json").read_text())
    pages: dict[str, Any] = {}
    for line in lines:
        pages.setdefault(line["path"], line["body"])
    answers = WorkerAnswers(
        models=pages["/v1/models"],
        server_info=pages["/server_info"],
        version=pages["/version"],
        event_sources=pages["/kv_event_sources"],
        metrics="\n".join(pages["/metrics"]),
    )
    found = describe(answers)
    spec = found.spec
    assert spec.engine is EngineKind.VLLM
    assert (spec.model, spec.version, spec.tokenizer) == ("tiny", "0.32.0", "/models/tiny-chatml")
    assert (spec.block_size, spec.num_ranks, spec.max_model_len) == (32, 1, 4096)
    assert spec.sources == (
        EventSource(Rank(W, 0), "tcp://10.1.2.3:5631", "tcp://10.1.2.3:5641", "kv-events"),
    )
    assert not found.is_asleep
    assert [card["id"] for card in found.cards] == ["tiny"]


def test_vllm_ranks_aliases_and_adapters() -> None:
    source = {"enable_kv_cache_events": True, "publisher": "zmq", "topic": ""}
    sources = {
        str(rank): source | {"endpoint": f"tcp://*:{5557 + rank}", "replay_endpoint": None}
        for rank in range(12)
    }
    spec = describe(WorkerAnswers(models=MODELS, event_sources=sources)).spec
    assert spec.num_ranks == 12
    assert [source.rank.dp_rank for source in spec.sources] == list(range(12))
    assert spec.sources[11] == EventSource(Rank(W, 11), "tcp://10.1.2.3:5568", None, "")
    assert (spec.aliases, spec.adapters) == (("tiny-alias",), ("my-lora",))


@pytest.mark.parametrize("names", [(1, 0), (None, None), ("1", "0")])
def test_vllm_may_list_its_ranks(names: tuple[object, object]) -> None:
    ports = (5558, 5557) if names[0] is not None else (5557, 5558)
    sources = [
        {"data_parallel_rank": name, "endpoint": f"tcp://*:{port}", "topic": "t"}
        for name, port in zip(names, ports, strict=True)
    ]
    spec = describe(WorkerAnswers(models=MODELS, event_sources=sources)).spec
    assert spec.num_ranks == 2
    assert spec.sources == (
        EventSource(Rank(W, 0), "tcp://10.1.2.3:5557", None, "t"),
        EventSource(Rank(W, 1), "tcp://10.1.2.3:5558", None, "t"),
    )


def test_named_events_stand_in_for_those_that_are_not_told() -> None:
    metrics = "\n".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} 0.0' for rank in range(2)
    )
    found = describe(WorkerAnswers(models=MODELS, metrics=metrics))
    named = NamedEvents("tcp://*:5557", "tcp://10.9.9.9:5657", "kv")
    assert with_named_events(found, named).spec.sources == (
        EventSource(Rank(W, 0), "tcp://10.1.2.3:5557", "tcp://10.9.9.9:5657", "kv"),
        EventSource(Rank(W, 1), "tcp://10.1.2.3:5558", "tcp://10.9.9.9:5658", "kv"),
    )
    last = with_named_events(found, NamedEvents("tcp://*:65535")).spec.sources
    assert last == (EventSource(Rank(W, 0), "tcp://10.1.2.3:65535", None, ""),)


def test_vllm_without_the_sources_route_counts_ranks_by_its_metrics() -> None:
    metrics = "\n".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} 0.0' for rank in range(3)
    )
    answers = WorkerAnswers(models=MODELS, version={"version": "0.20.0"}, metrics=metrics)
    spec = describe(answers).spec
    assert (spec.engine, spec.num_ranks, spec.sources) == (EngineKind.VLLM, 3, ())


@pytest.mark.parametrize("tells", ["sources", "metrics", "both"])
@pytest.mark.parametrize("ranks", [range(3, 4), range(4, 8), range(2)])
def test_vllm_may_serve_a_part_of_its_groups_ranks(ranks: range, tells: str) -> None:
    """As behind an external or a hybrid load balancer: every name is the group's."""
    sources = {str(rank): {"endpoint": f"tcp://*:{5557 + rank}"} for rank in ranks}
    metrics = "\n".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} 0.0' for rank in ranks
    )
    answers = WorkerAnswers(
        models=MODELS,
        event_sources=sources if tells != "metrics" else None,
        metrics=metrics if tells != "sources" else None,
    )
    found = describe(answers)
    assert [rank.dp_rank for rank in found.spec.ranks] == list(ranks)
    if tells == "metrics":
        found = with_named_events(found, NamedEvents("tcp://*:5557"))
    assert found.spec.sources == tuple(
        EventSource(Rank(W, rank), f"tcp://10.1.2.3:{5557 + rank}", None, "") for rank in ranks
    )


@pytest.mark.parametrize(("awake", "is_asleep"), [(("1.0", "0.0"), False), (("0.0", "0.0"), True)])
def test_asleep_is_who_has_no_engine_awake(awake: tuple[str, str], is_asleep: bool) -> None:
    name = "vllm:engine_sleep_state"
    metrics = "\n".join(
        f'{name}{{engine="{rank}",model_name="m",sleep_state="awake"}} {value}\n'
        f'{name}{{engine="{rank}",model_name="m",sleep_state="discard_all"}} 1.0'
        for rank, value in enumerate(awake)
    )
    assert describe(WorkerAnswers(models=MODELS, metrics=metrics)).is_asleep is is_asleep


def test_the_block_size_is_not_one_of_its_namesakes() -> None:
    labels = 'hash_block_size="7",effective_attention_block_size="8",block_size="16",mamba_block_size="9"'
    metrics = f"vllm:cache_config_info{{{labels}}} 1.0"
    assert describe(WorkerAnswers(models=MODELS, metrics=metrics)).spec.block_size == 16


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ("", ""),
        ("kv", "kv"),
        ("kv@{host}@{model}", "kv@10.1.2.3@m"),
        ("{worker}/{port}", f"{W}/8000"),
    ],
)
def test_an_engine_that_connects_is_listened_for_at_a_port_a_rank(topic: str, told: str) -> None:
    """Its replay sockets are its own, on its own host."""
    spec = WorkerSpec(W, "http://10.1.2.3:8000", "m", num_ranks=2)
    named = NamedEvents("tcp://*:5557", "tcp://*:5657", topic, is_bound=True)
    assert with_named_events(Discovered(spec), named).spec.sources == tuple(
        EventSource(
            Rank(W, rank),
            f"tcp://*:{5557 + rank}",
            f"tcp://10.1.2.3:{5657 + rank}",
            told,
            is_bound=True,
        )
        for rank in (0, 1)
    )


def test_any_openai_server_is_a_worker_without_events() -> None:
    spec = describe(WorkerAnswers(models={"data": [{"id": "m"}]})).spec
    assert (spec.engine, spec.model, spec.sources) == (EngineKind.UNKNOWN, "m", ())
