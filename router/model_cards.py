"""The fleet's entries of ``/v1/models``: models, aliases and adapters of all workers, each name once.

An entry is what the first worker that has the name says of it, in OpenAI's form: what is missing there (``object``,
``created``, ``owned_by``) is added. A name that a worker serves and does not list gets an entry of its own. Where
workers differ in ``max_model_len`` the longest counts: a prompt that fits one of them is served.
"""

from collections.abc import Iterable, Iterator, Mapping

from router.discovery import Discovered

Card = Mapping[str, object]

_LENGTH = "max_model_len"


def merged_cards(fleet: Iterable[Discovered]) -> list[Card]:
    """Entries in the order in which workers came. O(entries)."""
    cards: dict[object, Card] = {}
    for found in fleet:
        for card in _cards_of(found):
            known = cards.get(card["id"])
            cards[card["id"]] = card if known is None else _with_longest(known, card)
    return list(cards.values())


def _cards_of(found: Discovered) -> Iterator[Card]:
    """In OpenAI's form, and one for each name."""
    spec = found.spec
    for card in found.cards:
        yield _in_form(card, spec.engine.value)
    listed = {card["id"] for card in found.cards}
    length: dict[str, object] = {} if spec.max_model_len is None else {_LENGTH: spec.max_model_len}
    for name in dict.fromkeys((spec.model, *spec.aliases, *spec.adapters)):
        if name not in listed:
            parent = spec.model if name in spec.adapters else None
            card = {"id": name, "root": name, "parent": parent, **length}
            yield _in_form(card, spec.engine.value)


def _in_form(card: Card, owner: str) -> Card:
    form: dict[str, object] = {"id": card["id"], "object": "model", "created": 0, "owned_by": owner}
    is_given = {name: isinstance(card.get(name), type(value)) for name, value in form.items()}
    return form | {name: value for name, value in card.items() if is_given.get(name, True)}


def _with_longest(known: Card, other: Card) -> Card:
    length, longest = other.get(_LENGTH), known.get(_LENGTH)
    if not isinstance(length, int) or not isinstance(longest, int) or length <= longest:
        return known
    return {**known, _LENGTH: length}
