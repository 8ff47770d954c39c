"""Which block precedes a block, as prompts tell it that are hashed when somebody asks."""

from indexer.block_index import BlockIndex, Ref
from indexer.parent_links import ParentLinks
from indexer.prompt_blocks import PromptBlocks
from protocol import KeySpace, block_keys, local_hash, pack_tokens

INDEX = BlockIndex()


def prompt_blocks(path: str) -> PromptBlocks:
    """One block of two tokens a letter."""
    tokens = pack_tokens([ord(letter) for letter in path for _ in range(2)])
    return PromptBlocks(KeySpace("m", block_size=2), block_keys(tokens, 2), tokens)


def note(links: ParentLinks, path: str) -> list[Ref]:
    blocks = prompt_blocks(path)
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
