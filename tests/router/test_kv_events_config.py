"""SGLang's event endpoints, where only its flags tell them."""

import json

import pytest

from protocol import EngineKind, EventSource, Rank
from router.discovery import WorkerAnswers
from tests.router.worker_answers import MODELS, SGLANG, W, describe

FLAGS = {name: value for name, value in SGLANG.items() if name != "kv_events"}
FLAG = {"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657"}


def rank(dp_rank: int, host: str = "10.1.2.3", topic: str = "") -> EventSource:
    live, replay = f"tcp://{host}:{5557 + dp_rank}", f"tcp://{host}:{5657 + dp_rank}"
    return EventSource(Rank(W, dp_rank), live, replay, topic)


@pytest.mark.parametrize("is_text", [True, False])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (rank(0), rank(1))),
        ({"topic": "kv"}, (rank(0, topic="kv"), rank(1, topic="kv"))),
        ({"endpoint": "tcp://0.0.0.0:5557"}, (rank(0), rank(1))),
        ({"endpoint": "tcp://[::]:5557"}, (rank(0), rank(1))),
        ({"endpoint": "tcp://10.9.9.9:5557"}, (rank(0, "10.9.9.9"), rank(1, "10.9.9.9"))),
        ({"buffer_steps": 5, "hwm": 7, "format": "dynamo", "novel": {}}, (rank(0), rank(1))),
        ({"publisher": "null"}, ()),
        ({"publisher": None}, ()),
        ({"publisher": "other"}, ()),
    ],
)
def test_the_flag_tells_where_it_publishes(
    changes: dict[str, object], expected: tuple[EventSource, ...], is_text: bool
) -> None:
    flag = FLAG | changes
    info = FLAGS | {"kv_events_config": json.dumps(flag) if is_text else flag}
    found = describe(WorkerAnswers(models=MODELS, server_info=info))
    assert (found.spec.sources, found.faults) == (expected, ())
    assert (found.spec.engine, found.spec.block_size) == (EngineKind.SGLANG, 64)


def test_what_the_flag_leaves_out_has_its_default() -> None:
    info = FLAGS | {"kv_events_config": '{"publisher": "zmq"}', "dp_size": 1}
    (source,) = describe(WorkerAnswers(server_info=info)).spec.sources
    assert source == EventSource(Rank(W, 0), "tcp://10.1.2.3:5557", None, "")


def test_what_the_engine_tells_goes_before_its_flag() -> None:
    info = SGLANG | {"kv_events_config": json.dumps(FLAG | {"endpoint": "tcp://*:9999"})}
    found = describe(WorkerAnswers(server_info=info))
    assert found.spec.sources[0].endpoint == "tcp://10.1.2.3:5557"


@pytest.mark.parametrize("kv_events", [None, "", [], 5])
def test_a_flag_counts_where_the_engine_tells_nothing(kv_events: object) -> None:
    info = FLAGS | {"kv_events": kv_events, "kv_events_config": json.dumps(FLAG)}
    assert describe(WorkerAnswers(server_info=info)).spec.sources == (rank(0), rank(1))


@pytest.mark.parametrize("flag", [json.dumps(FLAG), FLAG])
def test_the_flag_alone_is_enough(flag: object) -> None:
    answers = WorkerAnswers(models=MODELS, server_info={"kv_events_config": flag})
    found = describe(answers)
    assert (found.spec.engine, found.spec.model) == (EngineKind.SGLANG, "tiny")
    assert found.spec.sources == (rank(0),)


def test_a_path_alone_names_the_model() -> None:
    info = {"model_path": "/models/big", "kv_events_config": json.dumps(FLAG)}
    found = describe(WorkerAnswers(server_info=info))
    assert (found.spec.model, found.spec.tokenizer) == ("/models/big", "/models/big")


@pytest.mark.parametrize(
    ("flag", "fault"),
    [
        ("{", "kv_events_config: not JSON"),
        ("[" * 100_000, "kv_events_config: not JSON"),
        (FLAG | {"endpoint": "ipc:///tmp/kv"}, "kv_events_config: an endpoint"),
        (FLAG | {"endpoint": 5557}, "kv_events_config: an endpoint"),
        (FLAG | {"endpoint": "tcp://*:0"}, "kv_events.endpoint_port_base: not between"),
        (FLAG | {"endpoint": "tcp://a b:5557"}, "kv_events.endpoint_host: neither"),
    ],
)
def test_a_flag_that_cannot_be_used_is_told(flag: object, fault: str) -> None:
    found = describe(WorkerAnswers(models=MODELS, server_info=FLAGS | {"kv_events_config": flag}))
    assert found.spec.sources == ()
    assert found.faults[0].startswith(fault)


def test_a_replay_socket_that_cannot_be_used_costs_itself_alone() -> None:
    flag = FLAG | {"replay_endpoint": "inproc://x"}
    found = describe(WorkerAnswers(server_info=FLAGS | {"kv_events_config": flag}))
    assert [source.replay_endpoint for source in found.spec.sources] == [None, None]
    assert found.faults == ("kv_events_config: an endpoint that is not tcp://host:port",)


@pytest.mark.parametrize("flag", [None, "", "null", "[]", 5, [], {}])
def test_an_engine_without_the_flag_publishes_nothing(flag: object) -> None:
    found = describe(WorkerAnswers(server_info=FLAGS | {"kv_events_config": flag}))
    assert (found.spec.sources, found.faults) == ((), ())
