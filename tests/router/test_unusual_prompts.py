"""Requests with images, or whose prompt is computed in full, from body to score and back."""

import json
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from indexer.fleet_index import FleetIndex
from indexer.trust import Trust
from prompt import Api, PromptModel, bundled_model_dir
from prompt.tokenizer import unpack_tokens
from protocol import BlockStored, EventBatch, Rank, WorkerId, WorkerSpec
from router.counters import DataCounters
from router.prompt_reader import PromptReader
from router.request_plan import plan_request
from scoring import Outcome, OutcomeKind, Planner, PolicyName

MODEL = PromptModel.load(bundled_model_dir(), name="m")
SIZE = 16
TEXT = "Look at this picture and say what there is in it. " * 20
RANK = Rank(WorkerId("w"))


class OneModel:
    def prompt_model(self, name: str | None) -> PromptModel | None:
        return MODEL


class Door:
    """A front door without sockets, and a worker that announced the prompt with image one."""

    def __init__(self) -> None:
        self.counters = DataCounters()
        self.reader = PromptReader(OneModel(), ThreadPoolExecutor(1), self.counters)
        self.index = FleetIndex()
        self.planner = Planner(self.index, policy=PolicyName.COST, rng=Random(1))
        spec = WorkerSpec(RANK.worker, "http://w", "m", block_size=SIZE)
        self.index.add_worker(spec, 0.0)
        self.index.set_trust(RANK, Trust.EXACT, 0.0)
        self.planner.add_worker(spec)

    def candidate(self, content: object) -> tuple[int, int | None]:
        """GPU blocks credited, and tokens known."""
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]})
        read = self.reader.read_now(Api.CHAT, body.encode())
        decision = self.planner.explain(plan_request(Api.CHAT, "r", read, 0.0), 0.0)
        return decision.candidates[0].gpu_blocks, decision.prompt_tokens

    def announce(self, image: str) -> int:
        """The prompt with an image after the text, in placeholders of equal ids; blocks before it."""
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": TEXT}]})
        text = self.reader.read_now(Api.CHAT, body.encode()).tokens
        assert text is not None
        start = unpack_tokens(text)
        end = MODEL.encode("<|end_turn|>\n<|turn|>assistant\n", add_special_tokens=False)
        start = start[: len(start) - len(end)]
        count = len(start) // SIZE + 8
        tokens = (start + [5] * SIZE * 9)[: count * SIZE]
        first = len(start) // SIZE
        keys = [[[image, 0]] if i >= first else None for i in range(count)]
        event = BlockStored(list(range(count)), None, tokens, SIZE, "GPU", extra_keys=keys)
        self.index.apply(RANK, EventBatch(0.0, [event]), 0.0)
        return first


def picture(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


COMPUTED = Outcome(OutcomeKind.COMPLETED, cached_tokens=0)
TEXT_PART = {"type": "text", "text": TEXT}


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.mark.parametrize("item", [picture("one"), picture("two"), {"type": "smell"}, {"odd": 1}])
def test_credit_ends_where_the_image_begins(door: Door, item: object) -> None:
    """Which image it is cannot be told from the request: the engine hashes what it loads and scales."""
    before = door.announce("one")
    assert before > 10
    assert door.candidate([TEXT_PART, item])[0] == before
    assert door.candidate([TEXT_PART, item, TEXT_PART])[0] == before
    assert door.candidate([item, TEXT_PART])[0] == 0


def test_a_text_is_credited_alike_as_a_string_and_as_a_part(door: Door) -> None:
    before = door.announce("one")
    assert door.candidate(TEXT) == door.candidate([TEXT_PART])
    assert door.candidate(TEXT)[0] == before


def test_an_image_in_front_leaves_the_request_to_load_but_for_what_precedes_its_message(
    door: Door,
) -> None:
    blocks, known = door.candidate([picture("one"), TEXT_PART])
    assert blocks == 0
    assert known is not None
    assert known < SIZE


def test_nothing_is_learned_from_a_prompt_of_unknown_length(door: Door) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [TEXT_PART, picture("one")]}]})
    read = door.reader.read_now(Api.CHAT, body.encode())
    plan = door.planner.plan(plan_request(Api.CHAT, "r", read, 0.0), 0.0)
    door.planner.first_byte(plan.plan_id, 1.0)
    outcome = Outcome(OutcomeKind.COMPLETED, prompt_tokens=5_000, cached_tokens=4_000)
    door.planner.finish(plan.plan_id, outcome, 2.0)
    counters = door.planner.counters()
    assert (counters.speed_samples, counters.lengths_differ, counters.reuse.answers) == (0, 0, 0)
    door.planner.check()
    door.index.check()


def test_what_is_computed_in_full_shows_nothing_of_the_cache(door: Door) -> None:
    """Prompt logprobs: the engine reports no reuse of what it holds, and stores it again."""
    texts = [f"{i}: {TEXT}" for i in range(6)]
    for turn in range(2):
        for number, text in enumerate(texts):
            body = json.dumps({"prompt": text, "prompt_logprobs": 1}).encode()
            read = door.reader.read_now(Api.COMPLETIONS, body)
            assert read.tokens is not None
            plan = door.planner.plan(plan_request(Api.COMPLETIONS, "r", read, 0.0), float(turn))
            tokens = unpack_tokens(read.tokens)
            count = len(tokens) // SIZE
            hashes = [1_000 * number + n for n in range(count)]
            event = BlockStored(hashes, None, tokens[: count * SIZE], SIZE, "GPU")
            door.index.apply(RANK, EventBatch(0.0, [event]), turn + 0.5)
            door.planner.finish(plan.plan_id, COMPUTED, turn + 0.6)
    (state,) = door.index.rank_states(9.0)
    assert (state.reports, state.contradictions, state.purges) == (0, 0, 0)
    assert door.planner.counters().reuse.matched_blocks > 0
