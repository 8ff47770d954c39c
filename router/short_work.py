"""What work is short enough to be done on the event loop: beyond it a thread does it, so that no stream waits for it."""

SHORT_BYTES = 16 * 1024
"""Of a body or an answer that is gone through once."""
