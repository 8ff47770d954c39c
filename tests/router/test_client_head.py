"""Targets and hosts, without a connection."""

import httptools
import pytest

from router.client_head import is_host, read_target


@pytest.mark.parametrize(
    ("url", "target"),
    [
        (b"/", (b"/", b"", False)),
        (b"/a?b=1", (b"/a", b"b=1", False)),
        (b"/a?b?c", (b"/a", b"b?c", False)),
        (b"/a?", (b"/a", b"", True)),
        (b"/a?#c", (b"/a", b"", True)),
        (b"/a?b#c", (b"/a", b"b", False)),
        (b"/a#?c", (b"/a", b"", False)),
        (b"//r/a", (b"//r/a", b"", False)),
        (b"/%2e%2E/a%3f?%20", (b"/%2e%2E/a%3f", b"%20", False)),
        (b"http://r", (b"/", b"", False)),
        (b"http://r?b", (b"/", b"b", False)),
        (b"http://r/a?", (b"/a", b"", True)),
        (b"http://u:p@r:80/a?b#c", (b"/a", b"b", False)),
        (b"*", None),
    ],
)
def test_only_path_and_query_of_a_target_go_on(
    url: bytes, target: tuple[bytes, bytes, bool] | None
) -> None:
    assert read_target(url) == target


@pytest.mark.parametrize("url", [b"", b"@r/", b"r/a"])
def test_what_is_no_url(url: bytes) -> None:
    with pytest.raises(httptools.HttpParserInvalidURLError):
        read_target(url)


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"r",
        b"r.example:8080",
        b"127.0.0.1:1",
        b"[::1]",
        b"[fe80::1]:80",
        b"a_b-c",
        b"%61",
        b"r:",
    ],
)
def test_hosts(host: bytes) -> None:
    assert is_host(host)


@pytest.mark.parametrize(
    "host",
    [
        b"r s",
        b"r/a",
        b"u@r",
        b"r:80a",
        b"r:80:90",
        b"::1",
        b"[::1",
        b"r, s",
        b"r?",
        b"\xe9",
        b"r\n",
    ],
)
def test_what_is_no_host(host: bytes) -> None:
    assert not is_host(host)
