"""One short request, where it is allowed: it makes an idle engine speak, and shows what answers report.

Two equal chats of one answer token each are sent to the engine. The first must lead to events that store its
blocks, the second must be reported as cached. The prompt begins with a number nobody used before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvroute.doctor.check import Check, CheckName, fault, ok, warning
from kvroute.doctor.flags import Flags
from kvroute.doctor.pages import Page, Pages
from router.answer_fields import fields_of
from router.plain_text import plain

DP_RANK = "X-Data-Parallel-Rank"
_WORDS = "Count slowly and say nothing else: "
_LENGTH = 600


@dataclass(frozen=True, slots=True)
class Probed:
    """What came of it.

    Attributes:
        pages: of both requests.
        own_tokens: prompt tokens by the router's own count; None where it has no tokenizer.
    """

    pages: Sequence[Page]
    own_tokens: int | None = None

    def usage(self, index: int) -> Mapping[str, object]:
        """Of one answer."""
        return fields_of(fields_of(self.pages[index].json).get("usage"))

    @property
    def cached_tokens(self) -> int | None:
        """As the second answer reports them."""
        cached = fields_of(self.usage(1).get("prompt_tokens_details")).get("cached_tokens")
        return cached if isinstance(cached, int) else None


def probe_body(model: str, nonce: str) -> dict[str, object]:
    """The chat: some hundred tokens, none of them cached."""
    numbers = " ".join(str(number) for number in range(_LENGTH // 4))
    text = f"{nonce} {_WORDS}{numbers}"
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 1,
        "temperature": 0,
    }


async def send(
    pages: Pages, body: Mapping[str, object], own_tokens: int | None, *, has_ranks: bool
) -> Probed:
    """Send it twice; where there are several ranks, both to the first of them."""
    headers = {DP_RANK: "0"} if has_ranks else {}
    answers = [await pages.post("/v1/chat/completions", body, headers) for _ in range(2)]
    return Probed(answers, own_tokens)


def probe_checks(probed: Probed, num_live: int | None, flags: Flags) -> list[Check]:
    """What both answers and the events heard meanwhile say.

    Args:
        num_live: live batches heard since; None where only a router hears them.
    """
    bad = next((page for page in probed.pages if not page.is_there), None)
    if bad is not None:
        text = f"the request failed: {plain(bad.shown)}"
        return [fault(CheckName.PROBE, text, "look into the engine's log")]
    return [_events(num_live, flags), *_length(probed), _cached(probed, flags)]


def _events(num_live: int | None, flags: Flags) -> Check:
    if num_live is None:
        return ok(CheckName.PROBE, "answered; its events are heard by the router alone")
    if num_live:
        return ok(CheckName.PROBE, f"answered; batches heard meanwhile: {num_live}")
    return fault(
        CheckName.PROBE,
        "answered, and no event was heard of it",
        f"{flags.events}; or another process owns the event port",
    )


def _length(probed: Probed) -> list[Check]:
    reported = probed.usage(0).get("prompt_tokens")
    if probed.own_tokens is None or not isinstance(reported, int):
        return []
    if reported == probed.own_tokens:
        return [
            ok(CheckName.PARITY, f"the engine counted {reported} prompt tokens, as is done here")
        ]
    return [
        fault(
            CheckName.PARITY,
            f"the engine counted {reported} prompt tokens, here they are {probed.own_tokens}",
            "give the router the engine's own chat template: --tokenizer MODEL=DIR",
        )
    ]


def _cached(probed: Probed, flags: Flags) -> Check:
    cached = probed.cached_tokens
    if cached is None:
        return warning(
            CheckName.CACHE_REPORT,
            "answers do not say how many prompt tokens were cached, so claims are not checked",
            flags.cache_report,
        )
    if cached == 0:
        return warning(
            CheckName.CACHE_REPORT, "the same prompt again: no token was reported as cached"
        )
    return ok(CheckName.CACHE_REPORT, f"the same prompt again: {cached} tokens reported as cached")
