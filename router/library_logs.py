"""What libraries log, as far as it is news."""

import logging


def quieten_libraries() -> None:
    """No line a dump, and none that repeats what the router counts: an answer that was left unfinished."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    server = logging.getLogger("uvicorn.error")
    server.setLevel(logging.WARNING)
    server.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return "without completing response" not in record.getMessage()
