"""Parked pieces: a forest under unknown parents, bounded, without cycles."""

from indexer.identity import Piece
from indexer.parking import Parking
from protocol import TokenBytes, local_hash, pack_tokens


def piece(parent: int, *hashes: int) -> Piece:
    tokens = pack_tokens([token for h in hashes for token in (h, h + 1)])
    return Piece(
        hashes, parent, tokens, 2, is_eagle=False,
        adapter=None, salt=None, multimodal=None, num_known=len(hashes),
    )  # fmt: skip


def test_what_waits_under_a_parent_is_taken_once_oldest_first() -> None:
    parking = Parking(100, 1 << 20)
    first, second, other = piece(1, 10, 11), piece(1, 20), piece(2, 30)
    for parked in (first, second, other):
        assert parking.park(parked) == 0
        parking.check()
    assert parking.num_blocks == 4
    assert list(parking.take(1)) == [first, second]
    assert list(parking.take(1)) == []
    parking.check()
    assert (10 in parking, 30 in parking, parking.num_blocks) == (False, True, 1)
    parking.clear()
    assert not parking


def test_the_oldest_piece_goes_at_the_bound() -> None:
    parking = Parking(4, 1 << 20)
    parking.park(piece(1, 10, 11))
    parking.park(piece(1, 20, 21))
    assert parking.park(piece(1, 30)) == 2
    parking.check()
    assert [p.hashes for p in parking.take(1)] == [(20, 21), (30,)]


def test_a_piece_larger_than_the_bound_does_not_stay() -> None:
    parking = Parking(2, 1 << 20)
    assert parking.park(piece(1, 10, 11, 12)) == 3
    assert not parking
    parking.check()


def test_cycles_of_any_length_are_seen() -> None:
    for length in range(1, 6):
        parking = Parking(100, 1 << 20)
        for i in range(length):
            link = piece(100 + i - 1 if i else 100 + length, 100 + i)
            assert not parking.closes_cycle(link)
            parking.park(link)
        assert parking.closes_cycle(piece(100 + length - 1, 100 + length))
        assert not parking.closes_cycle(piece(7, 100 + length))


def test_a_piece_is_found_by_the_tokens_of_its_first_block() -> None:
    parking = Parking(100, 1 << 20)
    parked = piece(1, 10, 11)
    parking.park(parked)
    local = local_hash(TokenBytes(parked.tokens[:8]))
    assert parking.starting_with(local) is parked
    parking.take(1)
    assert parking.starting_with(local) is None
