"""Sockets that the servers are given."""

import socket

import pytest

from router.ports import PortInUseError, address_of, listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]"])
def test_accepted_connections_do_not_delay_small_writes(host: str) -> None:
    with listen(host, 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert address_of(listener).startswith("[::1]:" if ":" in host else "127.0.0.1:")


def test_every_address_is_of_both_families() -> None:
    with listen("::", 0) as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port)):
                accepted, _ = listener.accept()
                accepted.close()


def test_a_taken_port_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{port}"):
            listen("127.0.0.1", port)
