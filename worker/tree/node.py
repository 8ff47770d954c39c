"""One node of the radix tree: a run of token pages with one state."""


class Node:
    """Opaque to callers: a handle to lock, to load back, to anchor a refill."""
