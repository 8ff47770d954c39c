"""Does the router's own tokenizer make the tokens that the engine makes? A few prompts are asked about.

``/tokenize`` generates nothing. Where an engine offers it for texts and not for chats, texts alone are compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from kvroute.doctor.check import Check, CheckName, fault, ok, unchecked
from kvroute.doctor.pages import Page, Pages
from prompt import PARITY_PROBES, Api, NoTokensError, PromptModel, view_request
from prompt.tokenizer import unpack_tokens


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt on both sides; None where a side has no tokens for it."""

    what: str
    own: tuple[int, ...] | None
    engine: tuple[int, ...] | None

    @property
    def first_difference(self) -> int | None:
        """Where the two part; None where they agree or cannot be compared."""
        if self.own is None or self.engine is None or self.own == self.engine:
            return None
        pairs = zip(self.own, self.engine, strict=False)
        at = next((i for i, (own, theirs) in enumerate(pairs) if own != theirs), None)
        return min(len(self.own), len(self.engine)) if at is None else at


async def compare(pages: Pages, model: PromptModel, name: str) -> list[Comparison]:
    """Every probe on both sides, one after the other; none further once there is no such route."""
    found: list[Comparison] = []
    for api, what, body in PARITY_PROBES:
        page = await pages.post("/tokenize", {"model": name, **body})
        if page.status in (404, 405, 501):
            break
        found.append(Comparison(what, own_tokens(model, api, body), _engine_tokens(page)))
    return found


async def tokenizes(pages: Pages, name: str) -> tuple[bool, bool]:
    """Whether the engine tokenizes texts, and whether it tokenizes chats, for others."""
    found = []
    for _, _, body in PARITY_PROBES[:2]:
        page = await pages.post("/tokenize", {"model": name, **body})
        found.append(page.is_there and _engine_tokens(page) is not None)
    return found[0], found[1]


def parity_check(comparisons: list[Comparison]) -> Check:
    """What the comparisons say."""
    name = CheckName.PARITY
    for one in comparisons:
        at = one.first_difference
        if at is not None and one.own is not None and one.engine is not None:
            return fault(
                name,
                f"the tokens of {one.what} differ from position {at} on "
                f"(here {len(one.own)}, engine {len(one.engine)})",
                "give the router the engine's own tokenizer.json and chat template: "
                "--tokenizer MODEL=DIR; a template of --chat-template goes there as chat_template.jinja",
                position=at,
            )
    compared = [one.what for one in comparisons if one.own is not None and one.engine is not None]
    if not compared:
        return unchecked(name, "the engine does not tokenize for others (no /tokenize)")
    return ok(name, f"the same tokens for {', '.join(compared)}")


def own_tokens(model: PromptModel, api: Api, body: Mapping[str, object]) -> tuple[int, ...] | None:
    """As the router makes them; None where it makes none."""
    try:
        prompt = model.prompt_tokens(view_request(api, orjson.dumps(body)))
    except NoTokensError:
        return None
    return tuple(unpack_tokens(prompt.tokens))


def _engine_tokens(page: Page) -> tuple[int, ...] | None:
    answer = page.json
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens):
        return None
    return tuple(tokens)
