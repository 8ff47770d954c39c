"""Snapshots of ranks and storage pools as lines: told one by one, so that nothing is ever there as a whole but one rank's copy.

A rank's snapshot is what its claims were right after batch ``seq``. Whoever loads it and applies every batch
from ``seq + 1`` on has what the teller has. Ranks are copied one after the other, each at its own moment.

Left out are predicted blocks, which belong to requests under way; what served prompts tell of parents that no
event names; parked blocks of more than 65,536 tokens, which stay unnamed; and which blocks the hashes name that a
storage pool has not announced: the ranks' claims tell most of them again.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from indexer.block_index import KEY_MASK, Ref, Space
from indexer.dump_format import (
    MAX_IN_LINE,
    NAMES,
    GroupLine,
    HeldLine,
    Line,
    NamesLine,
    ObservedLine,
    ParkedLine,
    PoolEndLine,
    PoolLine,
    RankEndLine,
    RankLine,
    SpaceLine,
    wire_hash,
)
from indexer.identity import Piece
from indexer.snapshots import GroupSnapshot, LedgerSnapshot, PoolSnapshot, RankSnapshot
from protocol import EngineHash, Tier, TokenBytes

Named: TypeAlias = tuple[EngineHash, Ref | None]
_KEY_BITS = 64
_MAX_PART_BYTES = 256 << 10


def rank_lines(
    snapshot: RankSnapshot, digests: Sequence[tuple[int, int]], now: float
) -> Iterator[Line]:
    """One rank, from ``rank`` to ``rank_end``; each line is O(512).

    Args:
        digests: number and digest of its last payloads.
    """
    ledger, spec = snapshot.ledger, snapshot.spec
    yield RankLine(
        worker=snapshot.rank.worker,
        dp_rank=snapshot.rank.dp_rank,
        url=spec.url,
        model=spec.model,
        engine=spec.engine,
        version=spec.version,
        trust=snapshot.trust,
        seq=snapshot.seq,
        digests=list(digests),
        geometries=[(size, is_eagle, n) for (size, is_eagle), n in ledger.geometries.items()],
        sparse=sorted(ledger.sparse),
        speaks_extra_keys=ledger.speaks_extra_keys,
        has_placeholders=ledger.has_placeholders,
    )
    yield from _content_lines(ledger, snapshot.spaces, now)
    yield RankEndLine(held=_num_held(ledger))


def pool_lines(
    snapshot: PoolSnapshot, digests: Sequence[tuple[int, int]], now: float
) -> Iterator[Line]:
    """One storage pool, from ``pool`` to ``pool_end``; each line is O(512)."""
    pool, ledger = snapshot.pool, snapshot.ledger
    yield PoolLine(
        name=pool.name,
        backend=pool.backend,
        address=pool.address,
        model=pool.model,
        layout=pool.layout,
        namespace=pool.namespace,
        trust=snapshot.trust,
        seq=snapshot.seq,
        digests=list(digests),
        geometries=[(size, is_eagle, n) for (size, is_eagle), n in ledger.geometries.items()],
    )
    yield from _content_lines(ledger, snapshot.spaces, now)
    yield PoolEndLine(held=_num_held(ledger))


def _num_held(ledger: LedgerSnapshot) -> int:
    return sum(len(h) for group in ledger.groups.values() for h, _ in group.held.values())


def _content_lines(
    ledger: LedgerSnapshot, spaces: Mapping[int, Space], now: float
) -> Iterator[Line]:
    """What is claimed, each space before the first line that refers to it."""
    told: set[int] = set()
    for line in _claim_lines(ledger, now):
        number = getattr(line, "space", None)
        if number is not None and number not in told:
            told.add(number)
            yield _space_line(number, spaces[number])
        yield line


def _claim_lines(ledger: LedgerSnapshot, now: float) -> Iterator[Line]:
    for index, group in ledger.groups.items():
        yield GroupLine(index=index)
        yield from _group_lines(group)
    for marked_at, refs in ledger.observed:
        for number, run in _by_space([(0, ref) for ref in refs]):
            assert number is not None
            age_s = max(0.0, now - marked_at)
            yield ObservedLine(space=number, keys=_keys(run), age_s=age_s)


def _space_line(number: int, space: Space) -> SpaceLine:
    key_space = space.key_space
    return SpaceLine(
        number=number,
        adapter=key_space.adapter,
        salt=key_space.salt,
        block_size=key_space.block_size,
        is_eagle=key_space.is_eagle,
    )


def _group_lines(group: GroupSnapshot) -> Iterator[Line]:
    for tier, (hashes, refs) in group.held.items():
        for number, run in _by_space(zip(hashes, refs, strict=True)):
            yield from _held_lines(group, tier, number, run)
    for tier, block_hash, refs in group.namesakes:
        for ref in refs:
            yield from _held_lines(group, tier, ref >> _KEY_BITS, [(block_hash, ref)])
    for piece in group.parked:
        yield from map(_parked_line, _parts(piece))
    for number, named in _by_space(group.names):
        assert number is not None
        yield NamesLine(space=number, hashes=_hashes(named), keys=_keys(named))


def _held_lines(
    group: GroupSnapshot,
    tier: Tier,
    number: int | None,
    run: Sequence[Named],
) -> Iterator[Line]:
    name = NAMES[tier]
    if number is not None:
        yield HeldLine(tier=name, space=number, hashes=_hashes(run), keys=_keys(run))
        return
    for is_unkeyable in (False, True):
        some = [pair for pair in run if (pair[0] in group.unkeyable) is is_unkeyable]
        if some:
            yield HeldLine(tier=name, space=None, hashes=_hashes(some), is_unkeyable=is_unkeyable)


def _parts(piece: Piece) -> Iterator[Piece]:
    """Pieces that follow each other and say the same, of up to 512 blocks and so many bytes of tokens and images.

    None where one block has more, or where a hash comes twice, so that a part would follow itself.
    """
    width, num_blocks = 4 * piece.block_size, len(piece.hashes)
    of_images = 8 * max(map(len, (piece.multimodal or {}).values()), default=0)
    count = min(MAX_IN_LINE, _MAX_PART_BYTES // max(width + of_images, 1))
    if count == 0:
        return
    for start in range(0, num_blocks, count):
        part = _part(piece, start, min(start + count, num_blocks))
        if part.parent not in part.hashes:
            yield part


def _part(piece: Piece, start: int, end: int) -> Piece:
    num_known = min(max(piece.num_known - start, 0), end - start)
    width = 4 * piece.block_size
    overlap = 4 * (piece.is_eagle and num_known > 0)
    tokens = piece.tokens[start * width : (start + num_known) * width + overlap]
    images = {i - start: ids for i, ids in (piece.multimodal or {}).items() if start <= i < end}
    return replace(
        piece,
        hashes=piece.hashes[start:end],
        parent=piece.hashes[start - 1] if start else piece.parent,
        tokens=TokenBytes(tokens),
        multimodal=images or None,
        num_known=num_known,
    )


def _parked_line(piece: Piece) -> ParkedLine:
    assert piece.parent is not None
    multimodal = piece.multimodal or {}
    return ParkedLine(
        parent=wire_hash(piece.parent),
        hashes=[wire_hash(block_hash) for block_hash in piece.hashes],
        tokens=base64.b64encode(piece.tokens).decode(),
        block_size=piece.block_size,
        is_eagle=piece.is_eagle,
        adapter=piece.adapter,
        salt=piece.salt,
        multimodal=[(block, list(ids)) for block, ids in multimodal.items()],
        num_known=piece.num_known,
    )


def _by_space(
    pairs: Iterable[Named],
) -> Iterator[tuple[int | None, list[Named]]]:
    """Runs of blocks of one space, at most 512 each, in order."""
    run: list[Named] = []
    number: int | None = None
    for pair in pairs:
        own = None if pair[1] is None else pair[1] >> _KEY_BITS
        if run and (own != number or len(run) == MAX_IN_LINE):
            yield number, run
            run = []
        number = own
        run.append(pair)
    if run:
        yield number, run


def _hashes(run: Iterable[Named]) -> list[int | str]:
    return [wire_hash(block_hash) for block_hash, _ in run]


def _keys(run: Iterable[Named]) -> list[int]:
    return [ref & KEY_MASK for _, ref in run if ref is not None]
