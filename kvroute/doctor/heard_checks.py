"""What the events themselves say of a worker: ranks, replay, topic, sizes, tiers, clock. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence

from kvroute.doctor.check import Check, CheckName, fault, ok, unchecked, warning
from kvroute.doctor.described import Described, named_host
from kvroute.doctor.flags import Dialect
from kvroute.doctor.hearing import Hearing
from kvroute.tap import NoteKind
from protocol import Tier
from router.plain_text import plain

MAX_LAG_S = 5.0
"""Publication to hearing; more is a clock that goes behind, or an engine that is late."""
MAX_AHEAD_S = 1.0
"""How far an engine's clock may go ahead."""
_WILDCARDS = ("*", "0.0.0.0", "::", "[::]")


def heard_checks(
    one: Described, hearings: Sequence[Hearing], ahead_s: float | None = None
) -> Iterator[Check]:
    """Everything that can be told from listening; nothing where there are no sources.

    Args:
        ahead_s: how far the engine's clock is ahead by its HTTP answers, to the second; None = not known.
    """
    if not hearings:
        return
    yield from _ranks(one, hearings)
    yield from _replay(one, hearings)
    yield from _topic(one, hearings)
    yield from _publishers(one, hearings)
    yield from _payloads(hearings)
    yield from _block_size(one, hearings)
    yield from _host_tier(one, hearings)
    yield from _clock(hearings, ahead_s)


def _of(hearings: Sequence[Hearing]) -> str:
    """Their ranks by number."""
    numbers = ", ".join(str(one.source.rank.dp_rank) for one in hearings)
    return f"rank {numbers}" if len(hearings) == 1 else f"ranks {numbers}"


def _ranks(one: Described, hearings: Sequence[Hearing]) -> Iterator[Check]:
    lost = [hearing for hearing in hearings if not hearing.was_connected]
    if not lost:
        yield ok(CheckName.RANKS, f"event sockets connected: {len(hearings)}")
        return
    first = lost[0]
    text = f"{_of(lost)}: {plain(first.source.endpoint)}: {plain(first.why_unreachable or '')}"
    yield fault(CheckName.RANKS, text, _bind(one, first), ranks=len(lost))


def _bind(one: Described, hearing: Hearing) -> str:
    host, port = named_host(one), hearing.source.endpoint.rpartition(":")[2]
    advice = f"open port {port} between the engine and here"
    if one.dialect is Dialect.SGLANG and host is not None and host not in _WILDCARDS:
        bind = one.flags.bind.replace("PORT", port)
        return f"{bind} (with a host of its own SGLang connects instead of listening); {advice}"
    num_nodes = one.info.get("nnodes")
    if isinstance(num_nodes, int) and num_nodes > 1:
        return f"{advice}; with --nnodes {num_nodes} ranks of other nodes listen on those nodes"
    return advice


def _replay(one: Described, hearings: Sequence[Hearing]) -> Iterator[Check]:
    name = CheckName.REPLAY
    off = [hearing for hearing in hearings if hearing.source.replay_endpoint is None]
    if off:
        port = off[0].source.endpoint.rpartition(":")[2]
        change = one.flags.replay_beside(int(port), one.spec.num_ranks)
        text = f"off on {_of(off)}: lost batches stay lost, a late router starts without knowledge"
        yield fault(name, text, change)
        return
    failed = [hearing for hearing in hearings if hearing.why_no_replay is not None]
    waiting = [hearing for hearing in hearings if not hearing.is_replay_over]
    if failed:
        endpoint = failed[0].source.replay_endpoint or ""
        port = endpoint.rpartition(":")[2]
        yield fault(
            name,
            f"{_of(failed)}: {plain(failed[0].why_no_replay or '')}",
            f"open port {port} between the engine and here; --kv-events-config: replay_endpoint must bind it",
        )
    elif waiting:
        yield unchecked(name, f"{_of(waiting)}: not answered to its end")
    else:
        yield _buffer(one, hearings)


def _buffer(one: Described, hearings: Sequence[Hearing]) -> Check:
    cut = [hearing for hearing in hearings if hearing.notes[NoteKind.REPLAY_TRUNCATED]]
    num_batches = sum(hearing.num_replayed for hearing in hearings)
    text = f"answers; batches buffered: {num_batches:,}"
    if not cut:
        return ok(CheckName.REPLAY, text)
    begins = ", ".join(str(hearing.first_seq) for hearing in cut)
    return warning(
        CheckName.REPLAY,
        f"{text}; {_of(cut)} forgot what was before {begins}, a late router learns that from traffic",
        one.flags.buffer,
    )


def _topic(one: Described, hearings: Sequence[Hearing]) -> Iterator[Check]:
    """Does what is published begin with the topic that is named? All topics were listened to."""
    named = {source.rank.dp_rank: source.topic for source in one.spec.sources}
    for hearing in hearings:
        topic = named[hearing.source.rank.dp_rank].encode("utf-8", "surrogatepass")
        other = [heard for heard in hearing.topics if not heard.startswith(topic)]
        if other:
            yield fault(
                CheckName.TOPIC,
                f"{_of([hearing])} publishes {_shown(other[0])} and names {_shown(topic)}",
                one.flags.topic,
            )
            return


def _shown(topic: bytes) -> str:
    return repr(plain(topic.decode("utf-8", "replace"), 64))


def _publishers(one: Described, hearings: Sequence[Hearing]) -> Iterator[Check]:
    """Does each port carry its own rank, of one process?"""
    name = CheckName.PUBLISHERS
    for hearing in hearings:
        own = hearing.source.rank.dp_rank
        foreign = sorted(rank for rank in hearing.dp_ranks if rank != own)
        if foreign:
            ranks = ", ".join(map(str, foreign))
            text = f"the port of rank {own} carries batches of rank {ranks}"
            is_shared = any(rank in one.spec.dp_ranks for rank in foreign)
            if is_shared:
                yield fault(
                    name,
                    f"{text}: two publishers share it",
                    "give every engine on a host a port range of its own in --kv-events-config",
                )
            else:
                yield warning(name, f"{text}, which the engine does not name as its own")
            return
        if hearing.notes[NoteKind.RESTART]:
            yield warning(name, f"rank {own} began anew while it was listened to")


def _payloads(hearings: Sequence[Hearing]) -> Iterator[Check]:
    kinds = (NoteKind.UNREADABLE, NoteKind.BAD_FRAMES, NoteKind.SKIPPED_EVENT)
    found: Counter[NoteKind] = Counter()
    for hearing in hearings:
        found.update({kind: hearing.notes[kind] for kind in kinds if hearing.notes[kind]})
    total = sum(hearing.num_events for hearing in hearings)
    if found:
        worst = next((hearing.worst for hearing in hearings if hearing.worst), "")
        counts = ", ".join(f"{kind.replace('_', ' ')}: {count}" for kind, count in found.items())
        only_skipped = set(found) == {NoteKind.SKIPPED_EVENT}
        text = f"{counts}; first of them: {plain(worst)}"
        if only_skipped:
            yield warning(CheckName.PAYLOADS, text)
        else:
            yield fault(CheckName.PAYLOADS, text, "nothing else may publish on the event port")
    elif total:
        yield ok(CheckName.PAYLOADS, f"events read: {total:,}")
    else:
        yield unchecked(CheckName.PAYLOADS, "no event heard: an idle engine publishes nothing")


def _block_size(one: Described, hearings: Sequence[Hearing]) -> Iterator[Check]:
    sizes: Counter[int] = Counter()
    for hearing in hearings:
        sizes.update(hearing.block_sizes)
    named, name = one.spec.block_size, CheckName.BLOCK_SIZE
    if not sizes:
        text = "named, not heard" if named is not None else "neither named nor heard"
        yield unchecked(name, f"{text}: {named}" if named is not None else text)
    elif len(sizes) > 1:
        shown = ", ".join(map(str, sorted(sizes)))
        yield warning(name, f"events of several sizes: {shown}", sizes=sorted(sizes))
    elif named is None:
        yield ok(name, f"{next(iter(sizes))}, by the events alone")
    elif named not in sizes:
        heard = next(iter(sizes))
        yield fault(
            name,
            f"the engine names {named}, its events have {heard}: whoever believes it finds no prefix",
            f"{one.flags.block_size} {heard}, or an engine that names the size of its events",
            named=named,
            heard=heard,
        )
    else:
        yield ok(name, str(named))


def _host_tier(one: Described, hearings: Sequence[Hearing]) -> Iterator[Check]:
    name = CheckName.HOST_TIER
    host = sum(hearing.stores[Tier.HOST] for hearing in hearings)
    gpu = sum(hearing.stores[Tier.GPU] for hearing in hearings)
    unannounced = sum(hearing.host_unannounced for hearing in hearings)
    is_on = one.info.get("enable_hierarchical_cache") is True
    if unannounced:
        yield fault(
            name,
            f"blocks left host memory that had come there unannounced: {unannounced:,}",
            "leave out --mute-refill-events"
            if one.dialect is Dialect.SIMULATED
            else "upgrade to SGLang 0.5.20 or later, or an offload connector that publishes its stores",
            unannounced=unannounced,
        )
    elif nameless := sum(hearing.host_without_tokens for hearing in hearings):
        yield warning(
            name,
            f"blocks announced in host memory: {host:,}, without tokens: {nameless:,}; such a one counts only where "
            "its store on GPU was heard, and may stand for several that go uncredited",
            "--self-describing-offload"
            if one.dialect is Dialect.SIMULATED
            else '"self_describing_kv_events": true in the connector\'s extra configuration (vLLM 0.24 or later)',
            without_tokens=nameless,
        )
    elif host:
        yield ok(name, f"blocks announced in host memory: {host:,}")
    elif is_on and gpu and all(hearing.is_whole for hearing in hearings):
        yield warning(
            name,
            f"on, and none of {gpu:,} blocks stored on GPU was announced in host memory",
            "--write-policy write_through copies at once"
            if one.dialect is Dialect.SIMULATED
            else "upgrade to SGLang 0.5.20 or later; --hicache-write-policy write_through copies at once",
        )
    elif is_on:
        yield unchecked(name, "on; no store in host memory heard yet")


def _clock(hearings: Sequence[Hearing], ahead_s: float | None) -> Iterator[Check]:
    """Do the engine's stamps agree with the clock here? Live batches tell; its HTTP answers, where there are none."""
    lags = [hearing.lags_s for hearing in hearings if hearing.lags_s is not None]
    change = "synchronise the clocks of both machines"
    if lags:
        least, most = min(lag[0] for lag in lags), max(lag[1] for lag in lags)
        evidence = {"least_s": round(least, 6), "most_s": round(most, 6)}
        low, high = f"{least * 1e3:,.1f}", f"{most * 1e3:,.1f}"
        text = f"events heard {low if low == high else f'{low} to {high}'} ms after their stamps"
        if least < -MAX_AHEAD_S or most > MAX_LAG_S:
            text = f"{text}: the clocks differ, or the engine is late"
            yield warning(CheckName.CLOCK, text, change, **evidence)
        else:
            yield ok(CheckName.CLOCK, text, **evidence)
    elif ahead_s is None:
        yield unchecked(CheckName.CLOCK, "no live event heard")
    elif abs(ahead_s) > MAX_LAG_S:
        way = "ahead" if ahead_s > 0 else "behind"
        text = f"{abs(ahead_s):,.0f} s {way}, by its HTTP answers"
        yield warning(CheckName.CLOCK, text, change, ahead_s=round(ahead_s))
    else:
        yield ok(CheckName.CLOCK, "agrees to the second, by its HTTP answers")
