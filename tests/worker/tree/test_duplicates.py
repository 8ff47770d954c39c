"""Host copies of device nodes: who gives them back first, and what a place in the queue is worth."""

from worker.tree.duplicates import Duplicates
from worker.tree.node import HostState, Node
from worker.tree.page_hash import PLAIN

ROOT = Node(None, PLAIN, [])


def duplicate(places: Duplicates, *, is_leaf: bool = False) -> Node:
    """A device node with a host copy, the next in the queue."""
    node = Node(ROOT, PLAIN, [b"page"])
    node.is_on_device = True
    node.num_device_children = 0 if is_leaf else 1
    node.host = HostState.READABLE
    places.refresh(node)
    return node


def set_device(places: Duplicates, node: Node, *, is_on_device: bool) -> None:
    node.is_on_device = is_on_device
    places.refresh(node)


def reclaim(places: Duplicates, num_pages: int) -> list[Node]:
    """Nodes whose host copy was taken, in order."""
    taken: list[Node] = []

    def take(node: Node) -> int:
        node.host = HostState.NONE
        places.refresh(node)
        taken.append(node)
        return 1

    assert places.reclaim(num_pages, take) == len(taken)
    return taken


def test_inner_nodes_yield_before_leaves_and_each_in_order() -> None:
    places = Duplicates()
    leaf, first, second = (duplicate(places, is_leaf=i == 0) for i in range(3))
    assert reclaim(places, 1) == [first]
    assert reclaim(places, 9) == [second, leaf]
    assert reclaim(places, 9) == []


def test_a_former_duplicate_finds_its_place_again() -> None:
    places = Duplicates()
    first, second = duplicate(places), duplicate(places)
    set_device(places, first, is_on_device=False)
    set_device(places, first, is_on_device=True)
    assert reclaim(places, 1) == [first]
    assert reclaim(places, 1) == [second]


def test_a_place_is_lost_when_a_reclaim_passes_it() -> None:
    places = Duplicates()
    first, second, third = (duplicate(places) for _ in range(3))
    set_device(places, first, is_on_device=False)
    assert reclaim(places, 1) == [second]
    set_device(places, first, is_on_device=True)
    assert reclaim(places, 2) == [third, first]


def test_a_place_behind_the_last_taken_is_kept() -> None:
    places = Duplicates()
    first, second, third = (duplicate(places) for _ in range(3))
    set_device(places, second, is_on_device=False)
    assert reclaim(places, 1) == [first]
    set_device(places, second, is_on_device=True)
    assert reclaim(places, 2) == [second, third]


def test_locked_and_copied_nodes_are_passed_over() -> None:
    places = Duplicates()
    locked, copied, free = (duplicate(places) for _ in range(3))
    locked.host_locks, copied.copy_in_flight = 1, 7
    for node in (locked, copied):
        places.refresh(node)
    assert reclaim(places, 9) == [free]
    places.check([locked, copied, free])
