"""Reference of the findings, read from their detectors."""

from indexer.detectors import DETECTORS
from indexer.findings import FindingKind
from router.pool_findings import POOL_FINDINGS
from router.tokenizer_findings import TOKENS_DIFFER_ADVICE, TOKENS_DIFFER_SEEN
from scripts.reference.docstrings import intro
from scripts.reference.markdown import code, page, prose, table

_INTRO = (
    "What `GET /debug/findings` on the [control port](control-port.md) can name. How to work with them: "
    "[findings](../how-to/findings.md)."
)


def findings() -> str:
    """The page."""
    rows = [
        (code(one.kind.value), prose(intro(one.detect)), prose(one.advice)) for one in DETECTORS
    ]
    rows += [(code(one.kind.value), prose(one.seen), prose(one.advice)) for one in POOL_FINDINGS]
    kind = FindingKind.TOKENS_DIFFER.value
    rows.append((code(kind), prose(TOKENS_DIFFER_SEEN), prose(TOKENS_DIFFER_ADVICE)))
    return page("Findings", _INTRO, table(("finding", "what is seen", "what to change"), rows))
