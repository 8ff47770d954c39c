"""Bounds of the index, all in one place: what is kept, how many, how long."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Sizes a rank and times in seconds. At a bound the oldest goes first, unless its line says otherwise. Claims
    that go, or are not made, are counted; memories that go are not.

    Attributes:
        full_ranks: ranks and storage pools up to which each has the sizes a rank in full. With more of them each has an
            equal share of what so many would have, and no fleet keeps more than those. What is beyond a share that
            shrinks goes within minutes.
        orphans: parked blocks whose parent is unknown, a cache group.
        orphan_bytes: of their tokens.
        unresolved: blocks announced without tokens and not yet named otherwise; further ones are not held.
        groups: cache groups that make claims; further ones make none.
        claims: hashes held on a tier, named or not, of all ranks together: a block that three ranks hold
            on two tiers counts six times. 180 to 300 bytes each. A rank's claims are incomplete from the
            first eviction on, until it is cleared or starts anew.
        age_grain: stores between two ages that are noted. The oldest go first, give or take so many.
        cleared_at_once: claims that a clear of every tier drops one by one; more are left behind in a
            retired slot and swept later.
        retired: blocks of retired slots, of all ranks together. Beyond it clears drop one by one.
        namesakes: hashes a group that name blocks of several namespaces; further blocks are not credited.
        observed: blocks held by evidence alone.
        predicted: blocks dispatched and not yet heard of.
        remembered: hashes a tier that were held a while ago, in each of two generations.
        pool_names: hashes that the ranks of a storage pool published, in each of two generations: its own events
            name blocks by nothing else.
        departures: blocks that left a tier a while ago, with the time, in each of two generations. What is
            beyond it counts as left, and explains a hit.
        doubled: blocks of which the engine may hold a second copy, in each of two generations.
        host_copies: hashes with further copies on HOST. Beyond it removals from HOST and reported hits are
            no evidence, until the rank is cleared or starts anew.
        observed_ttl_exact_s: on a rank whose events are unbroken they confirm or deny evidence soon;
            SGLang flushes every 40 decode steps.
        observed_ttl_s: on every other rank.
        predicted_ttl_s: while a request is under way its blocks are predicted, at most for so long; its
            end withdraws what it did not bring.
        doubt_ttl_s: claims older than an unrepaired loss, until confirmed.
        silence_bound_s: a rank that owes events and publishes nothing for so long is stale.
        unreachable_s: without a connection to its event socket for so long, while its worker answers, a
            rank counts as unreachable.
        contradictions: reports in a row that fall short of the claims before the rank is purged.
        rebuild_every_s: a rank that was purged is rebuilt by a replay from 0; when it is purged again, no sooner than
            so long afterwards.
        settle_s: how long an unexplained hit waits for events that are under way.
        unexplained_hits: such reports before they make a finding.
        finding_hold_s: a finding clears when its cause has not been seen for so long.
    """

    full_ranks: int = 64
    orphans: int = 8_192
    orphan_bytes: int = 16 << 20
    unresolved: int = 8_192
    groups: int = 16
    claims: int = 10_000_000
    age_grain: int = 256
    cleared_at_once: int = 1_024
    retired: int = 4_000_000
    namesakes: int = 4_096
    observed: int = 65_536
    predicted: int = 65_536
    remembered: int = 2_048
    pool_names: int = 131_072
    departures: int = 8_192
    doubled: int = 16_384
    host_copies: int = 16_384
    observed_ttl_exact_s: float = 30.0
    observed_ttl_s: float = 600.0
    predicted_ttl_s: float = 600.0
    doubt_ttl_s: float = 600.0
    silence_bound_s: float = 60.0
    unreachable_s: float = 30.0
    contradictions: int = 3
    rebuild_every_s: float = 600.0
    settle_s: float = 2.0
    unexplained_hits: int = 3
    finding_hold_s: float = 600.0
