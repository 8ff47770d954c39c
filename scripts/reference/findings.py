"""Reference of the findings, read from their detectors."""

from indexer.detectors import DETECTORS
from router.pool_findings import POOL_FINDINGS
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
    return page("Findings", _INTRO, table(("finding", "what is seen", "what to change"), rows))
