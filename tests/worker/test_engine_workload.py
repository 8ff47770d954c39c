"""Any workload: pools add up after every step, every request ends, and events tell the truth."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.virtual_time import Claims, Driver, make_engine, truth
from worker.engine_settings import QueueFullError, RequestTooLargeError
from worker.prefetch import PrefetchLimits, PrefetchPolicy
from worker.storage import MemoryStorage
from worker.tree import EvictionPolicy, HostMode, WritePolicy


@dataclass(frozen=True)
class Submit:
    """Prompts of one family share their leading tokens."""

    family: int
    length: int
    max_new_tokens: int


@dataclass(frozen=True)
class Cancel:
    """The request that was submitted as number ``index``."""

    index: int


@dataclass(frozen=True)
class Wait:
    """Milliseconds."""

    ms: float


@dataclass(frozen=True)
class FlushCache:
    """Refused while there are requests."""


ACTIONS = st.one_of(
    st.builds(Submit, st.integers(0, 2), st.integers(1, 60), st.integers(1, 20)),
    st.builds(Submit, st.integers(0, 2), st.integers(1, 60), st.integers(1, 20)),
    st.builds(Wait, st.floats(0, 60)),
    st.builds(Cancel, st.integers(1, 20)),
    st.just(FlushCache()),
)
FLEETS = st.fixed_dictionaries(
    {
        "page_size": st.sampled_from([1, 4]),
        "device_tokens": st.sampled_from([24, 64, 130]),
        "host_tokens": st.sampled_from([None, 16, 64, 256]),
        "write_policy": st.sampled_from(WritePolicy),
        "host_mode": st.sampled_from(HostMode),
        "eviction_policy": st.sampled_from(EvictionPolicy),
        "is_eagle": st.booleans(),
        "prefetch": st.builds(
            PrefetchLimits,
            st.just(4),
            st.sampled_from(PrefetchPolicy),
            st.sampled_from([0.0, 0.01]),
            st.just(0.0),
        ),
        "max_running": st.sampled_from([1, 3, 64]),
        "max_waiting": st.sampled_from([2, 256]),
        "chunk_tokens": st.sampled_from([4, 8_192]),
        "decode_log_interval": st.sampled_from([1, 5]),
    }
)


def prompt(family: int, length: int) -> list[int]:
    """The leading tokens of a family."""
    return [1_000 * family + i for i in range(length)]


def filled_storage(page_size: int, *, is_eagle: bool) -> MemoryStorage:
    """A store that another worker has filled with every family."""
    storage = MemoryStorage()
    writer = Driver(
        make_engine(
            page_size=page_size,
            device_tokens=512,
            host_tokens=512,
            storage=storage,
            is_eagle=is_eagle,
        )
    )
    for family in range(3):
        writer.serve(prompt(family, 60))
    return storage


def driver_of(fleet: dict[str, object]) -> Driver:
    """An engine over a full store."""
    page_size = fleet["page_size"]
    assert isinstance(page_size, int)
    storage = filled_storage(page_size, is_eagle=bool(fleet["is_eagle"]))
    return Driver(make_engine(storage=storage, **fleet))  # type: ignore[arg-type]


def act(driver: Driver, action: Submit | Cancel | Wait | FlushCache) -> None:
    """Do one thing now."""
    match action:
        case Submit(family, length, max_new_tokens):
            try:
                driver.submit(prompt(family, length), max_new_tokens)
            except (QueueFullError, RequestTooLargeError):
                return
        case Cancel(index):
            driver.engine.cancel(f"r{index}", driver.now)
        case Wait(ms):
            driver.step(driver.now + ms / 1e3)
        case FlushCache():
            driver.engine.flush_cache(driver.now)
    driver.engine.check()


@given(fleet=FLEETS, actions=st.lists(ACTIONS, max_size=25))
@settings(max_examples=150, deadline=None)
def test_workload(
    fleet: dict[str, object], actions: list[Submit | Cancel | Wait | FlushCache]
) -> None:
    driver = driver_of(fleet)
    for action in actions:
        act(driver, action)
    driver.run()
    counters = driver.engine.counters
    assert counters.finished + counters.cancelled == counters.submitted
    claims = Claims().fold(driver.events)
    assert claims.held == truth(driver.engine)
    assert claims.unknown_removals == 0
    if fleet["host_mode"] is HostMode.BUFFER_ONLY:
        assert not claims.heard["CPU_PINNED"]
    tree = driver.engine.tree
    tree.evict_device(tree.device.capacity)
    assert tree.device.free == tree.device.capacity


@given(fleet=FLEETS, actions=st.lists(ACTIONS, max_size=15))
@settings(max_examples=40, deadline=None)
def test_same_workload_same_run(
    fleet: dict[str, object], actions: list[Submit | Cancel | Wait | FlushCache]
) -> None:
    runs = []
    for _ in range(2):
        driver = driver_of(fleet)
        for action in actions:
            act(driver, action)
        driver.run()
        runs.append((driver.outputs, driver.flushes, driver.engine.counters))
    assert runs[0] == runs[1]
