"""What always holds in a tree core, verified by a walk."""

from worker.tree.config import TreeConfig, WritePolicy
from worker.tree.node import HostState, Node
from worker.tree.page_hash import chain_digests
from worker.tree.pool import TokenPool
from worker.tree.structure import Structure


def check_structure(structure: Structure) -> None:
    """Verify shape, states, locks, copies in flight and eviction orders. O(pages).

    Raises:
        AssertionError: an invariant is broken; the message names it and the node's state.
    """
    root = structure.root
    nodes = list(structure.nodes())
    assert root.is_on_device, "the root left the device"
    for node in [root, *nodes]:
        _check_children(node)
    for node in nodes:
        _check_state(node, structure.config)
        _check_digests(node)
        _check_locks(node)
    _check_copies(structure, nodes)
    locked = sum(structure.num_tokens(node) for node in nodes if node.device_locks)
    assert structure.locked_tokens == locked, f"{structure.locked_tokens} locked, not {locked}"
    structure.victims.check(nodes)


def check_pool(pool: TokenPool, cached_tokens: int, reserved_tokens: int) -> None:
    """Verify that what is cached and reserved is what is held."""
    assert 0 <= pool.free <= pool.capacity, f"{pool.free} free of {pool.capacity}"
    held = cached_tokens + reserved_tokens
    assert pool.held == held, (
        f"{pool.held} held, {cached_tokens} cached + {reserved_tokens} reserved"
    )


def _check_children(node: Node) -> None:
    for key, child in node.children.items():
        assert child.parent is node, f"a child with another parent below {_describe(node)}"
        assert child.key == key, f"a child under a wrong key below {_describe(node)}"
    on_device = sum(child.is_on_device for child in node.children.values())
    assert node.num_device_children == on_device, f"device children miscounted: {_describe(node)}"


def _check_state(node: Node, config: TreeConfig) -> None:
    parent = node.parent
    assert parent is not None
    assert not node.is_dead, f"a dead node in the tree: {_describe(node)}"
    assert node.pages, f"a node without pages: {_describe(node)}"
    assert node.is_on_device or node.host is HostState.READABLE, f"no copy: {_describe(node)}"
    assert not node.is_on_device or parent.is_on_device, f"device hole above {_describe(node)}"
    if config.write_policy is not WritePolicy.WRITE_BACK:
        assert node.host is HostState.NONE or parent.is_backed, f"host hole above {_describe(node)}"
    if not config.has_host_tier:
        assert node.host is HostState.NONE, f"a host copy without a host tier: {_describe(node)}"


def _check_digests(node: Node) -> None:
    parent, namespace = node.parent, node.namespace
    assert parent is not None
    storage = namespace.storage_seed if parent.is_root else parent.storage_digests[-1]
    event = namespace.event_seed if parent.is_root else parent.event_digests[-1]
    assert node.storage_digests == chain_digests(node.pages, storage), "wrong storage digests"
    assert node.event_digests == chain_digests(node.pages, event), "wrong event digests"


def _check_locks(node: Node) -> None:
    below = sum(child.device_locks for child in node.children.values())
    assert node.device_locks >= below, f"locked below, not here: {_describe(node)}"
    assert node.host_locks >= 0, f"host locks: {_describe(node)}"
    assert node.is_on_device or not node.device_locks, f"locked, not on device: {_describe(node)}"


def _check_copies(structure: Structure, nodes: list[Node]) -> None:
    covered = {id(node): copy for copy, part in structure.copies.items() for node in part}
    for node in nodes:
        assert covered.get(id(node)) == node.copy_in_flight, f"copy in flight: {_describe(node)}"
        if node.host is HostState.IN_FLIGHT:
            assert node.copy_in_flight is not None, f"in flight with no copy: {_describe(node)}"
        if node.copy_in_flight is not None:
            assert node.device_locks, f"in flight, not pinned: {_describe(node)}"
    assert len(covered) == sum(node.copy_in_flight is not None for node in nodes), (
        "a copy of no node"
    )


def _describe(node: Node) -> str:
    return (
        f"{len(node.pages)} pages, device={node.is_on_device}, host={node.host.name}, "
        f"children={len(node.children)}, device_locks={node.device_locks}, "
        f"host_locks={node.host_locks}, copy={node.copy_in_flight}, hits={node.hit_count}"
    )
