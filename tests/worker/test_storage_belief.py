"""What is believed to lie in storage: bounded, and corrected by what storage says."""

from worker.storage_belief import StorageBelief

DIGESTS = [bytes([number]) * 32 for number in range(4)]


def test_the_one_asked_for_longest_ago_goes() -> None:
    belief = StorageBelief(max_pages=2)
    belief.add(DIGESTS[:2])
    assert DIGESTS[0] in belief
    belief.add(DIGESTS[2:3])
    assert [digest in belief for digest in DIGESTS] == [True, False, True, False]
    belief.check()


def test_a_lookup_corrects_it() -> None:
    belief = StorageBelief()
    belief.add(DIGESTS[:3])
    belief.correct(DIGESTS, 1)
    assert [digest in belief for digest in DIGESTS] == [True, False, False, False]
    belief.clear()
    assert len(belief) == 0
