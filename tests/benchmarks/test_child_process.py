import os
import signal
import sys
import time

import psutil
import pytest

from benchmarks.child_process import cpu_s, free_ports, interrupted_by_sigterm, pinned_to, process

SLEEPER = ["-c", "import time; time.sleep(60)"]
PARENT = (
    "import subprocess, sys, time;"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
)


def core() -> int:
    return min(os.sched_getaffinity(0))


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_child_is_pinned_from_the_start_and_its_maker_is_not() -> None:
    before = os.sched_getaffinity(0)
    with process(SLEEPER, core()) as pid:
        assert os.sched_getaffinity(pid) == {core()}
        assert os.sched_getaffinity(0) == before
    assert not is_running(pid)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_child_ends_however_the_block_does(error: type[BaseException]) -> None:
    pids: list[int] = []

    def block() -> None:
        with process(SLEEPER, core()) as pid:
            pids.append(pid)
            raise error

    with pytest.raises(error):
        block()
    assert not is_running(pids[0])


def test_what_a_child_started_ends_with_it() -> None:
    with process(["-c", PARENT], core(), executable=sys.executable) as pid:
        deadline = time.monotonic() + 20
        while not (children := psutil.Process(pid).children()) and time.monotonic() < deadline:
            os.sched_yield()
        assert children
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [child for child in alive if is_running(child.pid)]


def test_cpu_time_is_that_of_the_process() -> None:
    before = time.process_time()
    assert cpu_s(os.getpid()) >= before
    with pytest.raises(ProcessLookupError):
        cpu_s(2**22 + 1)


def test_sigterm_interrupts_and_no_longer_than_it_should() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interrupted_by_sigterm(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_affinity_comes_back() -> None:
    before = os.sched_getaffinity(0)
    with pinned_to(core()):
        assert os.sched_getaffinity(0) == {core()}
    assert os.sched_getaffinity(0) == before


def test_free_ports_differ() -> None:
    assert len(set(free_ports(8))) == 8
