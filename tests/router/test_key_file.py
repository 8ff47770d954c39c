"""Keys from a file: which files are good, and what becomes of clients when one changes while the router runs."""

import asyncio
import hashlib
import json
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.client_keys import ClientKey, ClientKeys
from router.config import ConfigError, load_config
from router.errors import FrontDoorError
from router.file_watch import FileWatch, Reload
from router.hang_up import HangUp
from router.key_config import MAX_KEYS, ClientKeyEntry
from router.key_file import KeyFile, all_keys
from tests.router.front_door import ask, connect, front_door
from tests.router.stub_engine import stub_engine, until
from tests.router.stub_worker import Peer, answering, response, stub_worker
from tests.router.test_client_keys import entry
from tests.router.test_service import BODY, service

OK = answering(response(b"{}"))


def listed(name: str, **more: object) -> dict[str, object]:
    """A key as a file lists it."""
    return {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest(), **more}


def put(path: Path, *keys: dict[str, object]) -> None:
    """As a careful writer does it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(keys))
    new.rename(path)


def is_known(keys: ClientKeys, name: str) -> bool:
    try:
        return keys.of([(b"x-api-key", f"key-{name}".encode())]).name == name
    except FrontDoorError:
        return False


@asynccontextmanager
async def watched(path: Path, keys: ClientKeys, check_s: float = 0.01) -> AsyncIterator[KeyFile]:
    """Within the block the file is looked at."""
    file = KeyFile(path, (), keys)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(FileWatch({"the file of keys": file}, HangUp(), check_s).run())
        await asyncio.sleep(0)
        yield file
        task.cancel()


NO_VALUES = ("!!bool secret", "!!timestamp secret", "!!int ''", "2001-99-99", "9" * 5_000)
"""At which the library fails in ways of its own."""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "a list"),
        ("null", "a list"),
        ("{}", "a list"),
        ("[", "not YAML"),
        ("- kvr-secret", "an object of fields"),
        ("kvr-secret", "a list"),
        ("- {name: a}", "sha256: required"),
        ("- {name: a, sha256: kvr-secret}", "sha256: of the form"),
        ("- {name: a, sha256: kvr-secret, key: kvr-secret}", "of the form"),
        ("- {name: 'kvr secret', sha256: kvr-secret}", "name: of the form"),
        ("- {name: a, name: b}", "given twice"),
        ("\x00", "not YAML"),
        ("[" * 10_000, "too deep"),
        *((f"- {{name: {value}}}", "none of its type") for value in NO_VALUES),
    ],
)
def test_what_is_no_list_of_keys_is_told_without_what_it_says(
    tmp_path: Path, text: str, fault: str
) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as told:
        load_config(None, {"keys_file": path}, {})
    assert "keys_file: " in str(told.value)
    assert str(path) in str(told.value)
    assert fault in str(told.value)
    assert "secret" not in str(told.value)


def test_keys_of_both_places_are_known_and_none_twice(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    put(path, listed("a"), listed("b", max_in_flight=3))
    config = load_config(None, {"keys": [listed("c")], "keys_file": path}, {})
    assert [one.name for one in all_keys(config.keys, config.keys_file)] == ["c", "a", "b"]
    for twin, fault in (
        (listed("a"), "a second key named 'a'"),
        ({**listed("b"), "name": "z"}, "'b' is a key that is there already"),
    ):
        with pytest.raises(ConfigError, match=fault):
            load_config(None, {"keys": [twin], "keys_file": path}, {})
    with pytest.raises(ConfigError, match="no such file"):
        load_config(None, {"keys_file": tmp_path / "none"}, {})
    put(path, *[listed(str(number)) for number in range(MAX_KEYS + 1)])
    with pytest.raises(ConfigError, match="more than 1024 keys"):
        load_config(None, {"keys_file": path}, {})


def test_an_empty_list_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    put(path)
    keys = ClientKeys([])
    KeyFile(path, (), keys)
    assert list(keys) == []
    assert load_config(None, {"keys_file": path}, {}).keys_file == path


async def test_a_change_is_taken_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, keys = tmp_path / "keys.json", ClientKeys([])
    put(path, listed("a"))
    async with watched(path, keys) as file:
        assert is_known(keys, "a")
        put(path, listed("b"), listed("c"))
        await until(lambda: is_known(keys, "b"))
        assert not is_known(keys, "a")
        assert "keys of clients: 2, of which 2 new; 1 gone" in caplog.text
        for text in ("[{", "", "- kvr-secret"):
            file.reloads.clear()
            path.write_text(text)
            await until(lambda: file.reloads[Reload.FAILED] > 0)
            assert is_known(keys, "b")
        path.unlink()
        await until(lambda: "no such file" in caplog.text)
        assert is_known(keys, "b")
        put(path, listed("a"))
        await until(lambda: is_known(keys, "a"))
        keys.check()
    assert "the file of keys stays as it was: " in caplog.text
    assert "secret" not in caplog.text


async def test_sighup_takes_it_at_once(tmp_path: Path) -> None:
    path, keys = tmp_path / "keys.json", ClientKeys([])
    put(path, listed("a"))
    async with watched(path, keys, 3600.0) as file:
        put(path, listed("b"))
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: file.reloads[Reload.TAKEN] > 0)
        assert (is_known(keys, "a"), is_known(keys, "b")) == (False, True)


def test_what_was_used_of_limits_stays_used() -> None:
    keys = ClientKeys([entry("a", requests_per_s=0.01, burst=2, max_in_flight=2)])
    (key,) = keys
    key.enter("/generate", 0.0)
    keys.renew([entry("a", requests_per_s=0.01, burst=2, max_in_flight=2, models=["m"])], 0.0)
    assert next(iter(keys)) is key
    assert (key.in_flight, key.models) == (1, frozenset({"m"}))
    key.enter("/generate", 0.0)
    key.leave()
    with pytest.raises(FrontDoorError, match="faster than"):
        key.enter("/generate", 0.0)
    keys.renew([entry("a", max_in_flight=1)], 0.0)
    with pytest.raises(FrontDoorError, match="in flight"):
        key.enter("/generate", 0.0)
    key.leave()
    key.enter("/generate", 0.0)
    keys.check()


def test_a_key_that_is_drawn_anew_is_the_same_clients() -> None:
    keys = ClientKeys([entry("a", max_in_flight=1)])
    (key,) = keys
    key.enter("/generate", 0.0)
    new = ClientKeyEntry(name="a", sha256=hashlib.sha256(b"new").hexdigest(), max_in_flight=1)
    assert keys.renew([new], 0.0) == (0, 0)
    assert not is_known(keys, "a")
    assert keys.of([(b"x-api-key", b"new")]) is key
    assert key.in_flight == 1


async def test_what_runs_with_a_key_that_goes_goes_on() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await release.wait()
        await peer.send(response(b"{}"))

    keys = ClientKeys([entry("a")])
    (key,) = keys
    async with stub_worker(script) as worker, front_door(worker.url, keys=keys) as door:
        async with connect(door.port) as client:
            await client.send("POST", "/generate", [("x-api-key", "key-a")], b'{"model":"m"}')
            await worker.arrived.acquire()
            keys.renew([entry("b")], 0.0)
            assert (await ask(door, headers=[("x-api-key", "key-a")])).status == 401
            release.set()
            assert (await client.answer()).status == 200
            await client.send("POST", "/generate", [("x-api-key", "key-a")], b"{}")
            assert (await client.answer()).status == 401
        await door.settled()
        assert key.in_flight == 0
        keys.check()


async def test_a_router_with_a_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    put(path, listed("a"))
    async with stub_engine(script=OK) as engine, service(engine, keys_file=str(path)) as router:
        await router.ready()

        async def status(name: str) -> int:
            headers = {"x-api-key": f"key-{name}"}
            answer = await router.data.post("/v1/chat/completions", json=BODY, headers=headers)
            return answer.status_code

        assert (await status("a"), await status("b")) == (200, 401)
        put(path, listed("b"))
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(5):
            while await status("b") != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await status("a") == 401
        metrics = (await router.control.get("/metrics")).text
        assert 'kvroute_key_reloads_total{outcome="taken"} 1.0' in metrics


NAMES = st.sampled_from("abc")


class RenewedKeys(RuleBasedStateMachine):
    """Keys that come, go, are drawn anew and used meanwhile, beside what should be known of them."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = ClientKeys([])
        self.known: dict[str, tuple[str, int]] = {}  # name → secret, bound
        self.running: list[ClientKey] = []

    @rule(entries=st.dictionaries(NAMES, st.tuples(st.sampled_from("xyz"), st.integers(1, 3))))
    def renew(self, entries: dict[str, tuple[str, int]]) -> None:
        """A file is taken."""
        num_new, num_gone = len(entries.keys() - self.known), len(self.known.keys() - entries)
        found = [
            ClientKeyEntry(name=name, sha256=hash_of(name + secret), max_in_flight=bound)
            for name, (secret, bound) in entries.items()
        ]
        assert self.keys.renew(found, 0.0) == (num_new, num_gone)
        self.known = entries

    @rule(name=NAMES, secret=st.sampled_from("xyz"))
    def enter(self, name: str, secret: str) -> None:
        """A request comes with a key that may be known."""
        try:
            key = self.keys.of([(b"authorization", b"Bearer " + (name + secret).encode())])
        except FrontDoorError:
            assert self.known.get(name, ("", 0))[0] != secret
            return
        assert (key.name, self.known[name][0]) == (name, secret)
        num_running = self.running.count(key)
        try:
            key.enter("/generate", 0.0)
        except FrontDoorError:
            assert num_running >= self.known[name][1]
        else:
            assert num_running < self.known[name][1]
            self.running.append(key)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A request ends, be its key known or not."""
        key = data.draw(st.sampled_from(self.running))
        self.running.remove(key)
        key.leave()

    @invariant()
    def agrees(self) -> None:
        """Names and counts are those that should be."""
        self.keys.check()
        assert {key.name for key in self.keys} == self.known.keys()
        for key in self.keys:
            assert key.in_flight == self.running.count(key)


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


TestRenewedKeys = RenewedKeys.TestCase
TestRenewedKeys.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
