"""What is read out of engines' own metrics."""

from dataclasses import replace
from pathlib import Path

import pytest

from protocol import EngineKind, WorkerId
from router.discovery import WorkerAnswers, describe_worker
from router.engine_counters import engine_reuse
from router.engine_metrics import EngineReuse, read_metrics
from tests.router.brains import fleet

WORKER = WorkerId("w")
SAMPLE = Path(__file__).parents[1] / "data" / "vllm" / "metrics_sample.txt"


def test_a_recorded_sample() -> None:
    found = read_metrics(SAMPLE.read_text())
    assert found.block_size == 32
    assert found.reuse.keys() == {0}
    assert found.reuse[0].cached_tokens == 2_976
    assert found.reuse[0].prompt_tokens >= found.reuse[0].cached_tokens


SGLANG = """\
sglang:prompt_tokens_total{model_name="m",tp_rank="0"} 64.0 1790000000
sglang:cached_tokens_total{model_name="m",cache_source="device"} 16.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 8.0
"""
RANKED = SGLANG.replace("model_name", "dp_rank").replace('"m"', '"1"')


def vllm(rank: int, prompt: object, cached: object) -> str:
    labels = f'{{engine="{rank}",model_name="m"}}'
    return f"vllm:prompt_tokens_total{labels} {prompt}\nvllm:prompt_tokens_cached_total{labels} {cached}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (vllm(0, "100.0", "40.0"), {0: (100, 40)}),
        (vllm(0, "1e3", "4e2"), {0: (1_000, 400)}),
        (vllm(0, 100, 40) + vllm(1, 50, 0), {0: (100, 40), 1: (50, 0)}),
        (vllm(0, "NaN", 40), {}),
        (vllm(0, "+Inf", 40), {}),
        (vllm(0, -1, 40), {}),
        (vllm(0, "many", 40), {}),
        ('vllm:prompt_tokens_total{engine="0"} 5\n', {}),  # one without the other
        (SGLANG, {0: (64, 24)}),
        (RANKED, {1: (64, 24)}),
        (vllm(123_456_789, 1, 1), {}),
    ],
)
def test_what_engines_count_of_reuse(text: str, expected: dict[int, tuple[int, int]]) -> None:
    found = read_metrics(text).reuse
    assert found == {rank: EngineReuse(*counts) for rank, counts in expected.items()}


def test_the_number_of_ranks_is_bounded() -> None:
    assert len(read_metrics("".join(vllm(rank, 1, 1) for rank in range(3_000))).reuse) == 1_024


def test_the_engines_counts_are_shown_in_blocks_by_rank() -> None:
    with fleet() as one:
        reuse = {0: EngineReuse(330, 165), 1: EngineReuse(32, 0)}
        for name, block_size in (("w0", 16), ("w1", None)):
            record = one.registry.record(one.learn(name, block_size=block_size))
            assert record.discovered is not None
            record.discovered = replace(record.discovered, reuse=reuse)
        samples = [
            (sample.name, sample.labels["worker"], sample.labels["dp_rank"], sample.value)
            for metric in engine_reuse(one.registry.records())
            for sample in metric.samples
        ]
    assert samples == [
        ("kvroute_engine_prompt_blocks_total", "w0", "0", 20),
        ("kvroute_engine_prompt_blocks_total", "w0", "1", 2),
        ("kvroute_engine_cached_blocks_total", "w0", "0", 10),
        ("kvroute_engine_cached_blocks_total", "w0", "1", 0),
    ]


def test_both_kinds_of_engine_are_read() -> None:
    models = {"data": [{"id": "m", "root": "m", "parent": None}]}
    info = {"served_model_name": "m", "tokenizer_path": "t", "page_size": 4}
    text = 'sglang:prompt_tokens_total{a="b"} 9\nsglang:cached_tokens_total{a="b"} 4\n'
    found = describe_worker(WORKER, "http://w", WorkerAnswers(models, info, metrics=text))
    assert (found.spec.engine, found.reuse) == (EngineKind.SGLANG, {0: EngineReuse(9, 4)})
    found = describe_worker(WORKER, "http://w", WorkerAnswers(models, metrics=vllm(0, 9, 4)))
    assert found.reuse == {0: EngineReuse(9, 4)}
