"""Names that lead nowhere, by the system's own resolver: no network is asked for any of them."""

import pytest

from indexer.name_lookups import LOOKUP_FAULTS, NameLookups, SystemResolver

STRANGE = ["a..b", ".", "x" * 300, "a" * 64 + ".x", "\udcff", "\0", "é" * 70]


@pytest.mark.parametrize("host", STRANGE, ids=ascii)
async def test_what_is_no_name_is_a_fault_of_the_name(host: str) -> None:
    resolver = SystemResolver(1)
    lookups = NameLookups(resolver)
    try:
        with pytest.raises(LOOKUP_FAULTS):
            await lookups.look_up(host)
        assert lookups.first(host) is None
        assert await lookups.look_up("127.0.0.1") == ("127.0.0.1",)
    finally:
        resolver.close()


async def test_without_a_thread_nothing_is_found() -> None:
    resolver = SystemResolver(1)
    resolver.close()
    with pytest.raises(OSError, match="no thread"):
        await NameLookups(resolver).look_up("127.0.0.1")


async def test_what_was_known_is_kept() -> None:
    answers: list[tuple[str, ...] | Exception] = [("10.0.0.1",), ValueError("none"), ()]

    async def resolve(_: str) -> tuple[str, ...]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    lookups = NameLookups(resolve)
    assert await lookups.look_up("engine") == ("10.0.0.1",)
    for _ in range(2):
        with pytest.raises(LOOKUP_FAULTS):
            await lookups.look_up("engine")
        assert lookups.first("engine") == "10.0.0.1"
    lookups.keep(set())
    assert lookups.addresses("engine") == ()
