"""What a worker is, where its routes answer nonsense: only what cannot be used is dropped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.discovery import NotAWorkerError, WorkerAnswers
from tests.router.worker_answers import MODELS, SGLANG, describe

SURROGATE = "\ud800"
BAD_TEXTS = [SURROGATE, "a\nb", "a\x00b", "x" * 513]


def with_events(**changes: object) -> dict[str, object]:
    return SGLANG | {"kv_events": SGLANG["kv_events"] | changes}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("endpoint_host", text) for text in [*BAD_TEXTS, "a b", "h;x", "h/x", "1.2.3.4:9", "[::", "é"]),
        *(("topic", text) for text in BAD_TEXTS),
        ("endpoint_port_base", 0),
        ("endpoint_port_base", -1),
        ("endpoint_port_base", 65536),
        ("endpoint_port_base", 65535),
        ("replay_endpoint_port_base", 10**30),
        ("replay_endpoint_port_base", 65535),
    ],
)  # fmt: skip
def test_a_bad_event_field_costs_the_events_and_is_named(field: str, value: object) -> None:
    found = describe(WorkerAnswers(server_info=with_events(**{field: value})))
    assert found.spec.sources == ()
    assert (found.spec.model, found.spec.num_ranks) == ("big", 2)
    assert found.num_faults == 1
    assert field in found.faults[0] or "ports of the last ranks" in found.faults[0]


@pytest.mark.parametrize("text", BAD_TEXTS)
def test_a_bad_name_is_not_taken(text: str) -> None:
    for field in ("version", "tokenizer_path"):
        found = describe(WorkerAnswers(server_info=SGLANG | {field: text}))
        assert (found.num_faults, found.faults[0].split(":")[0]) == (1, field)
    nameless = {"served_model_name": text, "tokenizer_path": "/t"}
    with pytest.raises(NotAWorkerError, match=r"no model; served_model_name: not printable"):
        describe(WorkerAnswers(server_info=nameless))


@pytest.mark.parametrize("size", [0, -1, 1 << 30, 10**30])
def test_a_size_that_no_engine_has_is_not_taken(size: int) -> None:
    found = describe(WorkerAnswers(server_info=with_events(block_size=size)))
    assert (found.spec.block_size, found.num_faults) == (64, 1)
    if size < 1:
        found = describe(WorkerAnswers(server_info=SGLANG | {"context_length": size}))
        assert (found.spec.max_model_len, found.num_faults) == (None, 1)


@pytest.mark.parametrize("num_ranks", [513, 10**6, 10**300])
def test_more_ranks_than_are_followed_are_refused(num_ranks: int) -> None:
    assert describe(WorkerAnswers(server_info=with_events(dp_size=512))).spec.num_ranks == 512
    with pytest.raises(NotAWorkerError, match="more data-parallel ranks than can be followed, 512"):
        describe(WorkerAnswers(server_info=with_events(dp_size=num_ranks)))


@pytest.mark.parametrize(
    "name", ["²", "٣", "-1", "512", "1e1", " 1", "", "9" * 5000, SURROGATE, "0", "00"]
)
def test_a_rank_that_is_no_number_or_comes_twice_is_skipped(name: str) -> None:
    source = {"endpoint": "tcp://*:5557"}
    sources = {"0": source, name + "0" if name == "0" else name: source}
    found = describe(WorkerAnswers(models=MODELS, event_sources=sources))
    assert [one.rank.dp_rank for one in found.spec.sources] == [0]
    assert found.num_faults == 1
    listed: list[object] = [source | {"data_parallel_rank": 0}]
    odd: list[object] = [name, 1.5, [], 10**30]
    listed += [source | {"data_parallel_rank": rank} for rank in odd]
    found = describe(WorkerAnswers(models=MODELS, event_sources=listed))
    assert {one.rank.dp_rank for one in found.spec.sources} == {0}


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:0", "tcp://*:65536", "tcp://*:٣٣", "tcp://\ud800:1", "tcp://a/b:1", "ipc://x", 5]
)  # fmt: skip
def test_an_endpoint_that_is_none_costs_only_itself(endpoint: object) -> None:
    sources = {"0": {"endpoint": endpoint}, "1": {"endpoint": "tcp://*:5557"}}
    found = describe(WorkerAnswers(models=MODELS, event_sources=sources))
    assert [one.rank.dp_rank for one in found.spec.sources] == [1]
    assert found.faults == ("/kv_event_sources: an endpoint that is not tcp://host:port",)


def _deep(depth: int) -> object:
    value: object = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "card",
    [
        *({"id": name} for name in BAD_TEXTS),
        {"id": []},
        {"id": {}},
        {"id": 5},
        {"id": None},
        {"id": ""},
        {"id": "n", "max_model_len": 10**30},
        {"id": "n", "root": SURROGATE},
        {"id": "n", "permission": _deep(300)},
        {"id": "n", "x": "y" * 20_000},
        "n",
    ],
)
def test_a_card_that_cannot_be_shown_is_dropped(card: object) -> None:
    models = {"data": [card, {"id": "good"}]}
    found = describe(WorkerAnswers(models=models))
    assert [one["id"] for one in found.cards] == ["good"]
    assert (found.spec.model, found.spec.aliases, found.num_faults) == ("good", (), 1)


def test_cards_are_bounded_in_number() -> None:
    found = describe(WorkerAnswers(models={"data": [{"id": f"m{n}"} for n in range(1030)]}))
    assert (len(found.cards), found.num_faults) == (1024, 1)


@pytest.mark.parametrize(
    "piece",
    [
        "vllm:engine_sleep_state{",
        'vllm:engine_sleep_state{sleep_state="awake"',
        "vllm:cache_config_info{,",
        'vllm:num_requests_running{engine="',
        "vllm:num_requests_running{}",
        "{,{,}",
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_no_metrics_take_longer_than_they_are_long(piece: str, end: str) -> None:
    """A megabyte of it is read within the test's time; backtracking would take hours."""
    text = (piece + end) * ((1 << 20) // len(piece))
    assert not describe(WorkerAnswers(models=MODELS, metrics=text)).is_asleep


def test_nothing_is_no_worker() -> None:
    with pytest.raises(NotAWorkerError, match="no model"):
        describe(WorkerAnswers())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "data",
                    "id",
                    "parent",
                    "kv_events",
                    "endpoint_port_base",
                    "dp_size",
                    "0",
                    "1",
                    "endpoint",
                    "endpoint_host",
                    "served_model_name",
                    "block_size",
                    "version",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON, JSON, JSON, st.text(max_size=30))
def test_no_answer_breaks_it(
    models: object, info: object, version: object, sources: object, metrics: str
) -> None:
    try:
        spec = describe(WorkerAnswers(models, info, version, sources, metrics)).spec
    except NotAWorkerError:
        return
    assert spec.num_ranks >= 1
    assert all(source.rank.dp_rank < spec.num_ranks for source in spec.sources)
