"""How many requests each rank of an engine runs at once, as the engine tells it."""

from collections.abc import Mapping

from router.answer_fields import AnswerFields, fields_of

_MAX_RUNNING = 1_000_000


def sglang_max_running(
    info: Mapping[str, object], num_ranks: int, read: AnswerFields
) -> int | None:
    """Requests in a batch of one rank; None where the engine does not say, or says it oddly.

    What a scheduler has worked out goes before the flag, which is for all ranks together, and null by default.

    Source: SGLang 0.5.23 ``/server_info`` (``internal_states``, ``max_running_requests``), read.
    """
    states = info.get("internal_states")
    state = fields_of(states[0]) if isinstance(states, list) and states else {}
    name = "effective_max_running_requests_per_dp"
    found = read.size(state.get(name), f"internal_states.{name}", _MAX_RUNNING)
    if found is not None:
        return found
    of_all = read.size(info.get("max_running_requests"), "max_running_requests", _MAX_RUNNING)
    return None if of_all is None else max(of_all // num_ranks, 1)
