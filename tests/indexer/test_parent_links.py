"""Which block precedes a block, as prompts tell it that are hashed when somebody asks."""

import pytest

from indexer.block_index import BlockIndex, Ref
from indexer.parent_links import ParentLinks
from indexer.prompt_blocks import PromptBlocks
from indexer.trust import Trust
from protocol import EngineKind, KeySpace, block_keys, local_hash, pack_tokens
from tests.indexer.small_fleet import SIZE, SmallFleet, names, prompt, rank, worker_spec
from tests.indexer.small_fleet import blocks as tokens_of

INDEX = BlockIndex()


def prompt_blocks(path: str, adapter: str | None = None, salt: str | None = None) -> PromptBlocks:
    """One block of two tokens a letter."""
    tokens = pack_tokens([ord(letter) for letter in path for _ in range(2)])
    return PromptBlocks(KeySpace("m", adapter, salt, 2), block_keys(tokens, 2), tokens)


def note(
    links: ParentLinks, path: str, adapter: str | None = None, salt: str | None = None
) -> list[Ref]:
    blocks = prompt_blocks(path, adapter, salt)
    refs = list(INDEX.open(blocks.key_space).refs(blocks.keys))
    links.note(blocks, refs, range(1, len(refs)))
    return refs


def local(letter: str) -> int:
    return local_hash(pack_tokens([ord(letter)] * 2))


def test_a_block_follows_the_one_before_it() -> None:
    links = ParentLinks(8)
    assert not links
    refs = note(links, "abc")
    assert links
    assert [links.get(local(letter)) for letter in "abc"] == [None, refs[0], refs[1]]
    assert len(links) == 2
    links.clear()
    assert not links
    assert links.get(local("b")) is None


def test_a_block_after_two_different_ones_says_nothing() -> None:
    links = ParentLinks(8)
    refs = note(links, "abc")
    assert links.get(local("b")) == refs[0]
    note(links, "xb")
    note(links, "abc")
    assert [links.get(local(letter)) for letter in "bc"] == [None, refs[1]]


def test_some_blocks_of_a_prompt_follow_the_ones_before_them() -> None:
    links = ParentLinks(8)
    blocks = prompt_blocks("abcdef")
    refs = list(INDEX.open(blocks.key_space).refs(blocks.keys))
    links.note(blocks, refs, [2, 4])
    links.note(blocks, refs, [])
    found = [links.get(local(letter)) for letter in "abcdef"]
    assert found == [None, None, refs[1], None, refs[3], None]


def test_prompts_that_nobody_asked_about_are_bounded() -> None:
    links = ParentLinks(3)
    for path in ("ab", "cd", "ef", "gh", "i"):
        note(links, path)
    assert [links.get(local(letter)) is None for letter in "bdfh"] == [True, False, False, False]
    refs = note(links, "klmnopq")  # longer than the bound: its end is kept
    assert [links.get(local(letter)) for letter in "nopq"] == [None, *refs[3:6]]
    assert len(links) == 3
    links.clear()
    assert not links


def test_a_block_of_another_namespace_says_nothing() -> None:
    links = ParentLinks(8)
    base, adapted = note(links, "ab"), note(links, "ab", "ad")
    assert links.get(local("b")) == base[0]
    assert links.get(local("b"), "ad") == adapted[0]
    assert links.get(local("b"), "other") is None
    assert links.get(local("b"), None, "s") is None


@pytest.mark.parametrize("is_salted_first", [True, False])
def test_a_child_without_a_salt_may_be_of_a_salted_prompt(is_salted_first: bool) -> None:
    links = ParentLinks(8)
    refs = {
        salt: note(links, "ab", salt=salt)
        for salt in (["s", None] if is_salted_first else [None, "s"])
    }
    assert links.get(local("b"), None, "s") == refs["s"][0]
    assert links.get(local("b")) is None


@pytest.mark.parametrize("adapter_of_child", [None, "ad", "other"])
@pytest.mark.parametrize("is_served_first", [True, False])
def test_a_child_is_adopted_in_its_own_namespace_only(
    is_served_first: bool, adapter_of_child: str | None
) -> None:
    """The same conversation goes on with an adapter and without it; one of them was served since we joined."""
    fleet = SmallFleet("w", trust=Trust.JOINED)
    shared, tail = tokens_of(0, 4), tokens_of(900, 2)
    served = prompt([*shared, *tail, 1], adapter="ad")
    if is_served_first:
        fleet.serve("w", served, 4 * SIZE)
    fleet.store("w", names(50, 2), tail, names(40, 1)[0], lora_name=adapter_of_child)
    if not is_served_first:
        fleet.serve("w", served, 4 * SIZE)
    fleet.wait(601.0)  # what was served is no evidence any more
    others = [prompt([*shared, *tail, 1], adapter=name) for name in (None, "ad", "other")]
    assert [fleet.match("w", one).matched_blocks for one in others] == [0, 0, 0]
    is_adopted = fleet.state("w").orphans == 0
    assert is_adopted is (adapter_of_child == "ad")


SALTED_SIGNS = ["dispatched", "served", "stored", "stored elsewhere"]


def show_salt(fleet: SmallFleet, sign: str, tokens: list[int]) -> None:
    """The router comes to know that prompts are salted."""
    match sign:
        case "dispatched":
            fleet.index.predict(rank("w"), prompt(tokens, salt="s"), fleet.now)
        case "served":
            fleet.serve("w", prompt(tokens_of(700, 3), salt="s"))
        case _:
            worker = "w" if sign == "stored" else "v"
            fleet.store(worker, names(70, 1), tokens_of(700, 1), cache_salt="t")


@pytest.mark.parametrize("is_forgotten", [True, False])
@pytest.mark.parametrize("sign", SALTED_SIGNS)
@pytest.mark.parametrize("is_served_first", [True, False])
def test_where_salts_are_used_a_child_that_names_none_is_nobodys(
    is_served_first: bool, sign: str, is_forgotten: bool
) -> None:
    """The engine names the salt with a prompt's first block only, and that one was stored before we joined."""
    fleet = SmallFleet("w", "v", trust=Trust.JOINED)
    shared, tail = tokens_of(0, 4), tokens_of(900, 2)
    plain = prompt([*shared, *tail[:SIZE], 1])
    if is_served_first:
        fleet.serve("w", plain)
    show_salt(fleet, sign, [*shared, *tail, 1])
    if is_forgotten:
        fleet.wait(601.0)
        fleet.serve("w", plain)
    fleet.store("w", names(50, 2), tail, names(40, 1)[0], extra_keys=[None, None])
    if not is_served_first:
        fleet.serve("w", plain)
    fleet.wait(601.0)
    fleet.serve("w", plain)
    for salt, expected in ((None, 5), ("s", 0), ("t", 0)):
        asked = prompt([*shared, *tail, 1], salt=salt)
        assert fleet.match("w", asked).matched_blocks == expected, salt
    assert fleet.state("w").orphans == 2


def test_an_engine_that_names_every_salt_is_believed_where_it_names_none() -> None:
    spec = worker_spec("w", engine=EngineKind.SGLANG)
    fleet = SmallFleet(spec, trust=Trust.JOINED)
    shared, tail = tokens_of(0, 4), tokens_of(900, 2)
    fleet.serve("w", prompt(tokens_of(700, 3), salt="s"))
    fleet.serve("w", prompt([*shared, *tail, 1]))
    fleet.store("w", names(50, 2), tail, names(40, 1)[0])
    assert fleet.state("w").orphans == 0
