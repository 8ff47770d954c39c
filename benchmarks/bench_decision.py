"""One routing decision: microseconds of CPU from packed tokens to a booked plan, record included.

Each prompt is new (its block keys are hashed), shares a prefix with what the ranks hold, and is finished
after the measured call. Why: it is paid by every request before its first byte leaves. Baseline in the
same run: the same planner under ``round_robin``, which still matches for the record.
"""

import random
from time import process_time_ns

from benchmarks.fleet_of_claims import (
    BLOCK_SIZE,
    MODEL,
    empty_index,
    specs,
    stores,
    tokens_of,
)
from benchmarks.measurement import Measurement, main, measured
from protocol import TokenBytes, pack_tokens
from scoring import Outcome, OutcomeKind, Planner, PlanRequest, PolicyName

SIZES = [(128, 8), (128, 64), (1024, 8), (1024, 64)]


def planner_with(num_blocks: int, num_workers: int, policy: PolicyName) -> Planner:
    """A fleet in which each worker holds its share of one long prefix on GPU and host."""
    index, ranks = empty_index(num_workers)
    planner = Planner(index, policy=policy, rng=random.Random(7))
    tokens = tokens_of(num_blocks, 3)
    for spec, rank in zip(specs(num_workers), ranks, strict=True):
        planner.add_worker(spec)
        number = ranks.index(rank) + 1
        held = tokens[: num_blocks * number // num_workers * BLOCK_SIZE]
        index.apply(rank, stores(held, 16, "GPU", 3), 1.0)
        index.apply(rank, stores(held, 16, "CPU_PINNED", 3), 1.0)
    return planner


def request(tokens: TokenBytes, number: int) -> PlanRequest:
    """One chat of the model."""
    return PlanRequest(f"r{number}", "chat", MODEL, tokens, time=0.0, is_streaming=True)


def decisions(
    num_blocks: int, num_workers: int, policy: PolicyName, num_runs: int, peer: Measurement | None
) -> Measurement:
    """Median over runs of the mean over 50 decisions."""
    planner = planner_with(num_blocks, num_workers, policy)
    shared = pack_tokens(tokens_of(num_blocks, 3))
    runs, number = [], 0
    for _ in range(num_runs):
        spent = 0
        for _ in range(50):
            number += 1
            tail = pack_tokens([number, number + 1])
            prompt = request(TokenBytes(shared + tail), number)
            start = process_time_ns()
            plan = planner.plan(prompt, now=2.0)
            spent += process_time_ns() - start
            planner.first_byte(plan.plan_id, 2.0)
            planner.finish(plan.plan_id, Outcome(OutcomeKind.COMPLETED), 2.0)
        runs.append(spent / 50 / 1e3)
    name = f"decision_{policy}_{num_blocks}_blocks_{num_workers}_workers_us"
    return measured(name, "µs", runs, peer)


def run(quick: bool) -> list[Measurement]:
    """All rows."""
    num_runs = 5 if quick else 15
    rows: list[Measurement] = []
    for num_blocks, num_workers in SIZES:
        peer = decisions(num_blocks, num_workers, PolicyName.ROUND_ROBIN, num_runs, None)
        cost = decisions(num_blocks, num_workers, PolicyName.COST, num_runs, peer)
        rows += [peer, cost]
    return rows


if __name__ == "__main__":
    main("Decisions", run)
