"""Prompts that nobody can tokenize go where alike ones went, and nothing else comes of them."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from indexer.findings import FindingKind
from prompt import Api, bundled_model_dir
from protocol import EngineKind
from router.counters import DataCounters
from router.headers import read_request_head
from router.prompt_reader import PromptReader
from router.request_plan import plan_request
from router.shelf import PromptShelf, Rung
from scoring import Outcome, OutcomeKind
from tests.router.brains import TestFleet, fleet

HEAD = read_request_head([(b"content-type", b"application/json")])
SAID = {"role": "user", "content": "Which worker holds what this begins with? " * 60}
ANSWER = {"role": "assistant", "content": "The second one. " * 20}


class Door:
    """A front door without sockets before a fleet whose tokenizers are not known."""

    def __init__(self, one: TestFleet, executor: ThreadPoolExecutor) -> None:
        self.one, self.counters = one, DataCounters()
        self.reader = PromptReader(one.brains.shelf, executor, self.counters, approximates=True)
        self.num_served = 0

    async def serve(self, *messages: dict[str, str], cached_tokens: int | None = None) -> str:
        """Who served the chat."""
        planner, now = self.one.brains.planner, self.one.clock.now
        self.num_served += 1
        body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
        read = await self.reader.read(Api.CHAT, HEAD, body)
        assert read.is_approximate
        plan = planner.plan(plan_request(Api.CHAT, f"r{self.num_served}", read, 0.0), now)
        planner.first_byte(plan.plan_id, now)
        outcome = Outcome(OutcomeKind.COMPLETED, 700, cached_tokens, 9)
        planner.finish(plan.plan_id, outcome, now)
        return plan.rank.worker


async def test_a_conversation_stays_where_it_began() -> None:
    with fleet() as one, ThreadPoolExecutor(1) as executor:
        workers = [one.learn(f"w{number}", block_size=16) for number in range(4)]
        door = Door(one, executor)
        for seed in range(5):
            begin: list[dict[str, Any]] = [{"role": "system", "content": f"{seed} " * 40}, SAID]
            first = await door.serve(*begin)
            for _ in range(3):
                begin += [ANSWER, SAID]
                assert await door.serve(*begin) == first
            assert first in workers
        assert not door.counters.unrouted
        assert door.counters.approximate_prompts == 20
        assert door.counters.cut_prompts == 0
        one.check()


async def test_a_guess_at_the_length_keeps_nobody_out_and_reports_find_no_fault() -> None:
    with fleet() as one, ThreadPoolExecutor(1) as executor:
        one.learn("w0", block_size=16, max_model_len=300)
        door = Door(one, executor)
        for cached in (None, 0, 16, 299) * 5:
            assert await door.serve(SAID, cached_tokens=cached) == "w0"
            one.tick(5.0)
        kinds = {finding.kind for finding in one.brains.index.findings(one.clock.now)}
        assert kinds == {FindingKind.EVENTS_MISSING}  # it announces none
        one.check()


def test_the_rung_is_named() -> None:
    with fleet() as one:
        one.learn("w0")
        for approximates, rung in ((True, Rung.APPROXIMATE), (False, Rung.NONE)):
            shelf = PromptShelf({}, approximates=approximates)
            shelf.keep(one.registry.specs())
            assert shelf.shelved("m").rung is rung


SGLANG = {"engine": EngineKind.SGLANG, "tokenizer": str(bundled_model_dir()), "block_size": 16}
TOOLS = [{"type": "function", "function": {"name": "look"}}]


@pytest.mark.parametrize(
    ("api", "body", "unrouted"),
    [
        (Api.CHAT, {"messages": [SAID], "tools": TOOLS}, None),
        (Api.CHAT, {"messages": [SAID], "chat_template": "{{ messages }}"}, None),
        (Api.CHAT, {"messages": [SAID], "reasoning_effort": "low"}, None),
        (Api.RESPONSES, {"input": [SAID], "tools": TOOLS}, None),
        (Api.COMPLETIONS, {"prompt": SAID["content"], "suffix": "end"}, None),
        (Api.RESPONSES, {"input": [SAID], "previous_response_id": "r"}, "unsupported_api"),
        (Api.COMPLETIONS, {"prompt": ["a", "b"]}, "batched_prompt"),
        (Api.CHAT, {"messages": []}, "not_a_prompt"),
    ],
)
async def test_what_engines_have_tokens_of_and_the_router_has_not(
    api: Api, body: dict[str, Any], unrouted: str | None
) -> None:
    with fleet() as one, ThreadPoolExecutor(1) as executor:
        one.learn("w0", **SGLANG)
        for spec in one.registry.specs():
            one.brains.shelf.put(spec, one.brains.shelf.load(spec))
        one.brains.shelf.keep(one.registry.specs())
        door = Door(one, executor)
        read = await door.reader.read(api, HEAD, json.dumps({"model": "m", **body}).encode())
        assert (read.unrouted, read.is_approximate) == (unrouted, unrouted is None)
        assert sum(door.counters.unrouted.values()) == (unrouted is not None)
        plain = json.dumps({"model": "m", "messages": [SAID]}).encode()
        assert not (await door.reader.read(Api.CHAT, HEAD, plain)).is_approximate
