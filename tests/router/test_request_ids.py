"""Names for requests without one."""

from itertools import islice

from router.request_ids import new_ids


def test_ids_are_long_and_all_different() -> None:
    ids = list(islice(new_ids(), 2_000))
    assert len(set(ids)) == len(ids)
    assert {len(bytes.fromhex(one)) for one in ids} == {16}
