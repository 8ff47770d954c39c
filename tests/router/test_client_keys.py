"""Keys of clients: who is known, what each may do, and how much of it."""

from hashlib import sha256

import pytest
from pydantic import ValidationError

from router.client_keys import MAX_KEY_BYTES, ClientKeys, KeyOutcome, Stranger
from router.errors import ErrorKind, FrontDoorError
from router.headers import RawHeader
from router.key_config import ClientKeyEntry

CHAT = "/v1/chat/completions"


def entry(name: str = "a", /, **rights: object) -> ClientKeyEntry:
    """A key that reads ``key-NAME``."""
    digest = sha256(f"key-{name}".encode()).hexdigest()
    return ClientKeyEntry.model_validate({"name": name, "sha256": digest, **rights})


def bearer(key: bytes) -> RawHeader:
    return b"authorization", b"Bearer " + key


@pytest.mark.parametrize(
    "headers",
    [
        [bearer(b"key-a")],
        [(b"authorization", b"bearer   key-a ")],
        [(b"x-api-key", b"key-a")],
        [(b"x-api-key", b"key-a"), bearer(b"another")],
        [bearer(b"another"), (b"x-api-key", b"key-a")],
        [bearer(b""), bearer(b"key-a")],
        [(b"authorization", b"Basic a2V5"), (b"x-api-key", b" key-a")],
    ],
)
def test_a_key_is_known_in_either_field(headers: list[RawHeader]) -> None:
    keys = ClientKeys([entry("b"), entry("a")])
    assert keys.of([(b"host", b"x"), *headers]).name == "a"
    assert not keys.strangers
    keys.check()


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], Stranger.NO_KEY),
        ([bearer(b"")], Stranger.NO_KEY),
        ([bearer(b"  ")], Stranger.NO_KEY),
        ([(b"authorization", b"Basic a2V5LWE=")], Stranger.NO_KEY),
        ([(b"authorization", b"key-a")], Stranger.NO_KEY),
        ([(b"x-api-key", b"")], Stranger.NO_KEY),
        ([(b"cookie", b"key-a")], Stranger.NO_KEY),
        ([bearer(b"key-A")], Stranger.UNKNOWN_KEY),
        ([bearer(b"key-a\xff")], Stranger.UNKNOWN_KEY),
        ([bearer(sha256(b"key-a").hexdigest().encode())], Stranger.UNKNOWN_KEY),
        ([bearer(b"k" * (MAX_KEY_BYTES + 1))], Stranger.UNKNOWN_KEY),
        ([bearer(b"1"), bearer(b"2"), bearer(b"3"), bearer(b"4"), bearer(b"key-a")], Stranger.UNKNOWN_KEY),
    ],
)  # fmt: skip
def test_nobody_else_is(headers: list[RawHeader], reason: Stranger) -> None:
    keys = ClientKeys([entry("a")])
    with pytest.raises(FrontDoorError) as refusal:
        keys.of(headers)
    assert (refusal.value.kind, refusal.value.status) == (ErrorKind.UNAUTHORIZED, 401)
    assert (b"www-authenticate", b"Bearer") in refusal.value.headers()
    assert "key-a" not in refusal.value.message
    assert keys.strangers == {reason: 1}


def test_two_hashes_with_one_beginning_are_two_keys() -> None:
    """Only the whole hash lets in."""
    digest = bytearray(sha256(b"key-a").digest())
    digest[-1] ^= 1
    keys = ClientKeys([ClientKeyEntry(name="near", sha256=digest.hex())])
    with pytest.raises(FrontDoorError):
        keys.of([bearer(b"key-a")])


def test_in_flight_is_bounded() -> None:
    keys = ClientKeys([entry("a", max_in_flight=2)])
    key = keys.of([bearer(b"key-a")])
    key.enter(CHAT, 0.0)
    key.enter(CHAT, 0.0)
    with pytest.raises(FrontDoorError) as refusal:
        key.enter(CHAT, 0.0)
    assert (refusal.value.status, refusal.value.retry_after_s) == (429, 1)
    key.leave()
    key.enter(CHAT, 0.0)
    keys.check()
    assert key.outcomes == {KeyOutcome.ADMITTED: 3, KeyOutcome.CONCURRENCY_LIMITED: 1}


def test_the_rate_is_bounded_and_the_wait_is_told() -> None:
    key = ClientKeys([entry("a", requests_per_s=0.1, burst=2)]).of([bearer(b"key-a")])
    for _ in range(2):
        key.enter(CHAT, 0.0)
        key.leave()
    with pytest.raises(FrontDoorError) as refusal:
        key.enter(CHAT, 0.5)
    assert (refusal.value.kind, refusal.value.retry_after_s) == (ErrorKind.RATE_LIMIT, 10)
    assert (b"retry-after", b"10") in refusal.value.headers()
    key.enter(CHAT, 10.5)
    assert key.outcomes == {KeyOutcome.ADMITTED: 3, KeyOutcome.RATE_LIMITED: 1}


def test_what_is_refused_for_another_reason_costs_no_token() -> None:
    key = ClientKeys([entry("a", requests_per_s=1, max_in_flight=1)]).of([bearer(b"key-a")])
    for _ in range(3):
        with pytest.raises(FrontDoorError) as refusal:
            key.enter("/flush_cache", 0.0)
        assert refusal.value.status == 403
    key.enter(CHAT, 0.0)
    with pytest.raises(FrontDoorError, match="in flight"):
        key.enter(CHAT, 1.0)
    key.leave()
    key.enter(CHAT, 1.0)


def test_an_administrator_may_use_every_path() -> None:
    key = ClientKeys([entry("a", administers=True)]).of([bearer(b"key-a")])
    key.enter("/flush_cache", 0.0)


def test_names_are_listed_in_order() -> None:
    assert [key.name for key in ClientKeys([entry("b"), entry("a")])] == ["b", "a"]


@pytest.mark.parametrize(
    ("rights", "message"),
    [
        ({"name": "no name"}, "name"),
        ({"sha256": "key-a"}, "sha256"),
        ({"burst": 3}, "burst: is of no use without requests_per_s"),
        ({"requests_per_s": 0}, "requests_per_s"),
        ({"cache_salt": "short"}, "shorter than 16 characters"),
        ({"rights": "all"}, "rights"),
    ],
)
def test_a_bad_entry_is_refused(rights: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        entry("a", **rights)
