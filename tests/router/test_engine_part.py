"""An engine that does a part of the work only is never taken for a whole one."""

import json
from contextlib import AsyncExitStack

import pytest

from router.discovery import PartialEngineError, WorkerAnswers
from router.engine_part import part_of
from router.probe import open_prober
from router.worker_record import WorkerState
from tests.router.brains import fleet
from tests.router.stub_engine import StubEngine, stub_engine, until
from tests.router.stub_worker import Peer, stub_worker
from tests.router.test_watcher import HOPS, TIMEOUTS, add, state, watching
from tests.router.worker_answers import MODELS, SGLANG, describe

TEXT = "model='m', kv_transfer_config=KVTransferConfig(kv_connector='X', kv_role='kv_producer', kv_rank=0)"
PRODUCER = {"kv_connector": "X", "kv_role": "kv_producer"}


@pytest.mark.parametrize(
    ("info", "part"),
    [
        (SGLANG, None),
        (SGLANG | {"disaggregation_mode": "null"}, None),
        (SGLANG | {"disaggregation_mode": None}, None),
        (SGLANG | {"disaggregation_mode": 5}, None),
        (SGLANG | {"disaggregation_mode": "prefill"}, "prefill-only"),
        (SGLANG | {"disaggregation_mode": "DECODE"}, "decode-only"),
        (SGLANG | {"encoder_only": False, "language_only": True}, None),
        (SGLANG | {"encoder_only": True}, "encoder-only"),
        ({"vllm_config": {"kv_transfer_config": None}}, None),
        ({"vllm_config": {"kv_transfer_config": PRODUCER}}, "prefill-only"),
        ({"vllm_config": {"kv_transfer_config": PRODUCER | {"kv_role": "kv_both"}}}, None),
        ({"vllm_config": {"kv_transfer_config": {"kv_role": "kv_consumer"}}}, "decode-only"),
        ({"vllm_config": {"kv_transfer_config": {"kv_role": 5}}}, None),
        ({"vllm_config": TEXT}, "prefill-only"),
        ({"vllm_config": "model='m', kv_transfer_config=None"}, None),
        ({"vllm_config": "x" * 100_000}, None),
        ({"kv_transfer_config": PRODUCER}, "prefill-only"),
        ({"kv_transfer_config": json.dumps(PRODUCER)}, "prefill-only"),
        (None, None),
        ([], None),
    ],
)
def test_which_part(info: object, part: str | None) -> None:
    assert part_of(info) == part
    if part is not None:
        with pytest.raises(PartialEngineError, match=f"^the engine is {part} and cannot serve"):
            describe(WorkerAnswers(models=MODELS, server_info=info))


def make_partial(engine: StubEngine, mode: str = "prefill") -> None:
    info = engine.pages["/server_info"]
    assert isinstance(info, dict)
    info["disaggregation_mode"] = mode


async def test_it_is_refused_with_a_word_until_it_is_whole() -> None:
    with fleet() as one:
        async with stub_engine() as engine, watching(one) as watcher:
            make_partial(engine)
            worker = add(one, engine)
            watcher.wake()
            await until(lambda: state(one, worker) is WorkerState.REFUSED)
            assert "prefill-only" in (one.registry.record(worker).trouble or "")
            assert one.registry.is_settled()
            assert one.plan(None, api="other") == ""
            assert one.registry.model_cards() == []
            one.check()
            make_partial(engine, "null")
            await until(lambda: state(one, worker) is WorkerState.SERVING)
            assert one.registry.record(worker).trouble is None
            assert one.plan() == worker
            one.check()


async def test_one_that_comes_back_as_a_part_serves_no_more() -> None:
    with fleet() as one:
        async with AsyncExitStack() as stack:
            partial, whole = [await stack.enter_async_context(stub_engine()) for _ in range(2)]
            watcher = await stack.enter_async_context(watching(one))
            workers = [add(one, engine) for engine in (partial, whole)]
            watcher.wake()
            await until(
                lambda: all(state(one, worker) is WorkerState.SERVING for worker in workers)
            )
            make_partial(partial, "decode")
            await until(lambda: state(one, workers[0]) is WorkerState.REFUSED)
            assert {one.plan() for _ in range(20)} == {workers[1]}
            assert [rank.rank.worker for rank in one.brains.index.rank_states(0)] == [workers[1]]
            one.check()
            make_partial(partial, "null")
            await until(lambda: state(one, workers[0]) is WorkerState.SERVING)
            one.registry.remove(workers[0])
            one.check()


async def test_a_vllm_is_asked_for_what_its_text_does_not_tell() -> None:
    async with stub_engine() as engine, open_prober(TIMEOUTS, None, HOPS) as prober:
        engine.pages |= {
            "/server_info": {"vllm_config": "model='m'"},
            "/server_info?config_format=json": {"vllm_config": {"kv_transfer_config": PRODUCER}},
        }
        assert "prefill-only" in (await prober.why_partial(engine.url) or "")
        del engine.pages["/server_info?config_format=json"]
        assert await prober.why_partial(engine.url) is None


async def test_nothing_is_known_against_who_does_not_answer() -> None:
    async def never(peer: Peer) -> None:
        await peer.gone()

    async with stub_worker(never) as stuck, open_prober(TIMEOUTS, None, HOPS) as prober:
        assert await prober.why_partial(stuck.url) is None
        assert await prober.why_partial("http://127.0.0.1:9") is None
