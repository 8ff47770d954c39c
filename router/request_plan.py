"""From what was read of a request to what the brain is asked."""

from prompt import Api
from router.prompt_reader import ReadRequest
from scoring import PlanRequest


def plan_request(api: Api, request_id: str, read: ReadRequest, time: float) -> PlanRequest:
    """The question to the brain.

    Args:
        time: wall clock, for the record.
    """
    view = read.view
    if view is None:
        return PlanRequest(request_id, api, None, None, time)
    return PlanRequest(
        request_id=request_id,
        api=api,
        model=view.model,
        tokens=read.tokens,
        time=time,
        cache_salt=view.cache_salt,
        max_output_tokens=view.max_output_tokens,
        is_streaming=view.is_streaming,
        timing_us=read.timing_us,
    )
