"""One function a kind of finding: rank by rank, is this gap there now, and what shows it?

A detector looks at a rank's book and returns its evidence, or None. ``DETECTORS`` lists them all; what
they say of several ranks becomes one finding in ``finding_board``.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from indexer.actions import LossCause
from indexer.findings import FindingKind
from indexer.limits import IndexLimits
from indexer.rank_book import RankBook
from indexer.shortfalls import Row, Wrong

Evidence = Mapping[str, int | float | str]

_NEVER_HEARD_S = 10.0
_MIN_REQUESTS = 3
_MIN_FAILED_REPLAYS = 2
_MIN_UNEXPLAINED_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Look:
    """One rank at one moment."""

    book: RankBook
    limits: IndexLimits
    now: float

    def is_recent(self, at: float) -> bool:
        """Whether a cause seen at that time still makes a finding."""
        return self.now - at <= self.limits.finding_hold_s


@dataclass(frozen=True, slots=True)
class Detector:
    """How one kind of finding is found, and what to change."""

    kind: FindingKind
    detect: Callable[[Look], Evidence | None]
    advice: str


def _host_stores_unannounced(look: Look) -> Evidence | None:
    """Removals from HOST that no announced store accounts for; reported hits that nothing explains."""
    evidence: dict[str, int | float | str] = {}
    book = look.book
    strange = book.strange_removals
    if strange.num_blocks and look.is_recent(strange.last_at):
        evidence["removed_host_blocks_never_stored"] = strange.num_blocks
        evidence["removed_example"] = _hash_text(strange.example)
    hits = [hit for hit in book.audit.unexplained if look.is_recent(hit.at)]
    if hits:
        evidence["unexplained_hits"] = len(hits)
        evidence["unexplained_hit_blocks"] = sum(hit.num_blocks for hit in hits)
        first = min(hit.num_hits_before for hit in hits)
        evidence["reports_with_hits"] = book.audit.num_hits - first
        evidence["unexplained_example"] = f"{hits[-1].first_key:016x}"
    return evidence or None


def _events_missing(look: Look) -> Evidence | None:
    """The rank has no event source, or serves requests and publishes nothing that tells of them."""
    book, owed, sources = look.book, look.book.owed, look.book.sources
    served = book.evidence.counters.served
    if not (sources or owed.num_batches):
        return {"served_requests": served, "event_sources": 0}
    if served < _MIN_REQUESTS:
        return None
    if not book.is_believed:
        return {"served_requests": served, "version": book.spec.version or ""}
    if owed.since is None:
        return None
    silent_s = look.now - owed.since
    is_mute = not owed.num_batches and owed.num_requests >= _MIN_REQUESTS
    if not (book.is_silent(look.now) or (is_mute and silent_s >= _NEVER_HEARD_S)):
        return None
    evidence = {
        "served_requests": served,
        "batches_heard": owed.num_batches,
        "unanswered_requests": owed.num_requests,
        "silent_s": round(silent_s, 1),
        "event_sources": len(book.spec.sources),
    }
    return {**evidence, **_listening(look)}


def _listening(look: Look) -> Evidence:
    """Where the router listens for the rank's engine; nothing where the engine does."""
    bound = [source.endpoint for source in look.book.sources if source.is_bound]
    return {"router_listens_at": bound[0]} if bound else {}


def _rank_unreachable(look: Look) -> Evidence | None:
    """The rank's worker answers, and its event socket has not been connected for half a minute."""
    since = look.book.disconnected_since
    if since is None or not look.book.is_unreachable(look.now):
        return None
    endpoint = next((source.endpoint for source in look.book.sources), "")
    return {"unreachable_s": round(look.now - since, 1), "endpoint": endpoint, **_listening(look)}


def _rank_unknown(look: Look) -> Evidence | None:
    """Events name a rank that the worker is not known to have, so no request is routed to what it holds."""
    book, at = look.book, look.book.owed.last_batch_at
    if book.rank.dp_rank in book.spec.dp_ranks or at is None or not look.is_recent(at):
        return None
    return {"batches_heard": book.owed.num_batches, "known_ranks": book.spec.num_ranks}


def _replay_off(look: Look) -> Evidence | None:
    """The rank's publisher cannot repeat what was lost."""
    mute = [source.endpoint for source in look.book.sources if source.replay_endpoint is None]
    return {"endpoint": mute[0]} if mute else None


def _replay_failing(look: Look) -> Evidence | None:
    """Replays are asked for again and again, and the replay endpoint does not answer, or not in full."""
    trouble = look.book.replay_trouble
    if trouble is None or trouble.num_failed < _MIN_FAILED_REPLAYS:
        return None
    endpoints = [source.replay_endpoint or "" for source in look.book.sources]
    return {
        "failed_replays": trouble.num_failed,
        "unanswered_replays": trouble.num_unanswered,
        "garbled_replays": trouble.num_garbled,
        "failing_s": round(look.now - trouble.since, 1),
        "replay_endpoint": next(iter(endpoints), ""),
    }


def _loss_unrepaired(look: Look) -> Evidence | None:
    """Batches were lost for good, and claims from before are still unconfirmed or it was recent."""
    causes = (LossCause.NO_REPLAY, LossCause.UNANSWERED, LossCause.TRUNCATED)
    losses = _losses(look, causes)
    if not losses:
        return None
    by_cause = {f"losses_{cause.value}": count for cause, count in losses.items()}
    doubtful = look.book.ledger.claims.num_doubtful
    return {"losses": sum(losses.values()), **by_cause, "doubtful_claims": doubtful}


def _events_unreadable(look: Look) -> Evidence | None:
    """Batches came and could not be decoded, in whole or in part; claims from before are in doubt."""
    losses = _losses(look, (LossCause.UNREADABLE,))
    if not losses:
        return None
    spec = look.book.spec
    return {
        "unreadable_batches": losses[LossCause.UNREADABLE],
        "doubtful_claims": look.book.ledger.claims.num_doubtful,
        "engine": spec.engine.value,
        "version": spec.version or "",
    }


def _losses(look: Look, causes: Collection[LossCause]) -> dict[LossCause, int]:
    """Losses of these causes that still matter: recent ones, and any while claims are in doubt."""
    if not look.book.losses:
        return {}
    is_in_doubt = look.book.ledger.claims.num_doubtful > 0
    return {
        cause: record.count
        for cause, record in look.book.losses.items()
        if cause in causes and (is_in_doubt or look.is_recent(record.last_at))
    }


def _parity_broken(look: Look) -> Evidence | None:
    """Events for served requests are overdue while other blocks are stored."""
    book = look.book
    if not book.owed.parity.is_broken(book.ledger.num_gpu_stored, look.now):
        return None
    return {
        "unconfirmed_requests": book.owed.parity.num_unconfirmed,
        "gpu_blocks_stored": book.ledger.num_gpu_stored,
    }


def _block_size_disagrees(look: Look) -> Evidence | None:
    """Events use another block size than the engine advertises."""
    advertised, observed = look.book.spec.block_size, look.book.geometry[0]
    if advertised is None or advertised == observed:
        return None
    return {"advertised_block_size": advertised, "observed_block_size": observed}


def _cached_tokens_contradict(look: Look) -> Evidence | None:
    """The engine reports less reuse than its events promise, again and again."""
    if _row_of(Wrong.CONTRADICTION, look) is None:
        return None
    counters = look.book.evidence.counters
    return {
        "contradictions": counters.contradictions,
        "purges": counters.purges,
        "claimed_blocks": counters.claimed_blocks,
        "reported_blocks": counters.reported_blocks,
    }


def _clears_missing(look: Look) -> Evidence | None:
    """One prompt after the other of which events promised blocks was reused in no part: the cache is gone."""
    row = _row_of(Wrong.SILENT_CLEAR, look)
    if row is None:
        return None
    return {
        "silent_clears": row.count,
        "requests_without_reuse": len(row.shortfalls),
        "claimed_blocks": sum(shortfall.announced for shortfall in row.shortfalls),
        "reused_blocks": sum(shortfall.reused for shortfall in row.shortfalls),
        "example": f"{row.shortfalls[-1].missing:016x}",
        "last_s": round(look.now - row.at, 1),
    }


def _row_of(wrong: Wrong, look: Look) -> Row | None:
    """The last row of shortfalls that showed this, while it is recent."""
    row = look.book.shortfalls.rows.get(wrong)
    return row if row is not None and look.is_recent(row.at) else None


def is_significant(kind: FindingKind, found: list[Evidence], limits: IndexLimits) -> bool:
    """Whether what was found on all ranks together is enough for a finding.

    A removal from HOST that no store accounts for is a fact. A hit may have been brought by somebody
    we do not know of (another router), so there must be several, and not a rare few among many hits.
    """
    if kind is not FindingKind.HOST_STORES_UNANNOUNCED:
        return bool(found)
    if any("removed_host_blocks_never_stored" in evidence for evidence in found):
        return True
    unexplained = sum(int(evidence.get("unexplained_hits", 0)) for evidence in found)
    reports = sum(int(evidence.get("reports_with_hits", 0)) for evidence in found)
    return (
        unexplained >= limits.unexplained_hits and unexplained >= _MIN_UNEXPLAINED_SHARE * reports
    )


def _hash_text(value: int | bytes) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


DETECTORS = (
    Detector(
        FindingKind.HOST_STORES_UNANNOUNCED,
        _host_stores_unannounced,
        "Blocks reach host memory unannounced, so hits there are not routed to: use SGLang 0.5.20 or "
        "later, which announces refills from storage (0.5.17 to 0.5.19 do not), or an engine whose "
        "offload connector publishes its stores; a simulated engine without --mute-refill-events.",
    ),
    Detector(
        FindingKind.EVENTS_MISSING,
        _events_missing,
        "Start the engine with KV events on (SGLang and vLLM: --kv-events-config with publisher zmq), "
        "check that the router reaches the endpoint (with router_listens_at in the evidence the engine has to reach "
        "the router there: name the router's host in its endpoint, open that port), name the endpoint in the worker's "
        "events where the engine does not tell it (vLLM without /kv_event_sources), and use SGLang 0.5.15 or later.",
    ),
    Detector(
        FindingKind.RANK_UNREACHABLE,
        _rank_unreachable,
        "Open the port of the endpoint between the engine and the router: engines publish events on ports of "
        "their own, one a rank; with several hosts the other ranks' ports may be on another host than the "
        "engine names. With router_listens_at in the evidence the engine has to reach the router there: name the "
        "router's host in its endpoint, open that port.",
    ),
    Detector(
        FindingKind.RANK_UNKNOWN,
        _rank_unknown,
        "Let the engine tell its ranks: SGLang by dp_size in /server_info, vLLM by its metrics (leave "
        "--disable-log-stats off) or /kv_event_sources; and name for each worker the endpoint of its own rank 0, "
        "not of another worker.",
    ),
    Detector(
        FindingKind.REPLAY_OFF,
        _replay_off,
        "Set replay_endpoint in the engine's --kv-events-config: without it lost batches cannot be "
        "repaired and a late joiner starts without knowledge.",
    ),
    Detector(
        FindingKind.REPLAY_FAILING,
        _replay_failing,
        "Open the port of the replay endpoint between the router and the engine, and make sure that it is this "
        "rank's own (base port + rank) and bound by nothing else: without it lost batches cannot be repaired.",
    ),
    Detector(
        FindingKind.LOSS_UNREPAIRED,
        _loss_unrepaired,
        "By cause: losses_no_replay, set replay_endpoint in the engine's --kv-events-config; "
        "losses_truncated, raise buffer_steps there; losses_unanswered, see to its replay endpoint.",
    ),
    Detector(
        FindingKind.EVENTS_UNREADABLE,
        _events_unreadable,
        "The engine publishes events in a form that this router cannot read, and replaying them does not "
        "help: use a version of both that agree, and make sure that nothing else publishes at the endpoint.",
    ),
    Detector(
        FindingKind.PARITY_BROKEN,
        _parity_broken,
        "The router's tokens differ from the engine's: give it the engine's own tokenizer and chat "
        "template for this model.",
    ),
    Detector(
        FindingKind.BLOCK_SIZE_DISAGREES,
        _block_size_disagrees,
        "The engine's events use another block size than it advertises; the router follows the events. "
        "Other consumers that trust the advertised size will find no prefix.",
    ),
    Detector(
        FindingKind.CACHED_TOKENS_CONTRADICT,
        _cached_tokens_contradict,
        "The engine reuses less than its events say: look for hybrid attention, whose hits need more than "
        "full-attention blocks, for namespaces that its events do not tell apart, and for an engine that counts "
        "its cached tokens otherwise.",
    ),
    Detector(
        FindingKind.CLEARS_MISSING,
        _clears_missing,
        "The engine lost its cache without an event: look for a sleep, a reset or a flush of the cache that it "
        "does not publish (an idle engine publishes with its next step at the earliest), and for a proxy or "
        "Service that hides a restart behind one address. The router has dropped the ranks' claims.",
    ),
)
