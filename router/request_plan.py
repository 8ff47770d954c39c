"""From what was read of a request to what the brain is asked."""

from prompt import Api, RequestView, computes_whole_prompt
from router.plain_text import plain, writable
from router.prompt_reader import ReadRequest
from scoring import PlanRequest

_MAX_OUTPUT_TOKENS = 1 << 40
"""No answer is longer, and beyond some 300 digits a number has no float."""


MAX_SESSION_CHARS = 256
"""Of a session's name; what is longer is cut."""

_SESSION_FIELDS = ("prompt_cache_key", "user")
_SESSION_NAMES = frozenset(_SESSION_FIELDS)


def plan_request(
    api: Api, request_id: str, read: ReadRequest, time: float, session: str | None = None
) -> PlanRequest:
    """The question to the brain, in text that can be kept and written.

    A model name that is too long, or not printable, is cut and mended: no worker has such a name.

    Args:
        time: wall clock, for the record.
        session: as the request's header names it.
    """
    view = read.view
    if view is None:
        return PlanRequest(request_id, api, None, None, time, session=_cut(session))
    limit = view.max_output_tokens
    return PlanRequest(
        request_id=request_id,
        api=api,
        model=None if view.model is None else plain(view.model),
        tokens=read.tokens,
        time=time,
        adapter=None if view.adapter is None else writable(view.adapter),
        extra_key=None if view.extra_key is None else writable(view.extra_key),
        cache_salt=None if view.cache_salt is None else writable(view.cache_salt),
        max_output_tokens=None if limit is None else min(limit, _MAX_OUTPUT_TOKENS),
        is_streaming=view.is_streaming,
        timing_us=read.timing_us,
        is_cut=read.is_cut or read.is_approximate,
        is_approximate=read.is_approximate,
        is_recomputed=computes_whole_prompt(view),
        session=_cut(view.session_id or session or _named_otherwise(view)),
    )


def _named_otherwise(view: RequestView) -> str | None:
    """What the request belongs with, where no session is named: OpenAI's key of a cache, else the user."""
    body = view.body
    if _SESSION_NAMES.isdisjoint(body):
        return None
    for name in _SESSION_FIELDS:
        value = body.get(name)
        if isinstance(value, str) and value:
            return value
    return None


def _cut(session: str | None) -> str | None:
    return session if session is None else session[:MAX_SESSION_CHARS]
