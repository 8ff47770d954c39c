"""How many files the process may open: each connection is one, and an event source takes several.

Shells start processes with a soft limit of 1,024 or so and a far higher hard one. The soft one is there for
programs that use `select`; this one does not, and raises it.
"""

import logging
import resource

logger = logging.getLogger(__name__)

_ENOUGH = 1 << 20
_FEW = 4096
_FILES_A_SOCKET = 1.5  # a ZeroMQ socket has a descriptor of its own, and a connection
_MIN_SOCKETS = 64
_MAX_SOCKETS = 65_535


def raise_file_limit() -> int:
    """Raise the soft limit to the hard one, or to a million where that is higher.

    Returns:
        Files that the process may open from here on.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _told(wanted if soft == resource.RLIM_INFINITY else soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # some systems forbid what they say is allowed
        logger.warning(
            "cannot raise the limit of open files from %d to %d: %s", soft, wanted, error
        )
        return _told(soft)
    logger.info("limit of open files raised from %d to %d", soft, wanted)
    return _told(wanted)


def sockets_within(num_files: int) -> int:
    """ZeroMQ sockets that half of so many files are enough for; the other half is for HTTP."""
    return min(_MAX_SOCKETS, max(_MIN_SOCKETS, int(num_files / 2 / _FILES_A_SOCKET)))


def connections_within(num_files: int, wanted: int) -> int:
    """Connections of clients that half of so many files are enough for, or what is wanted where that is less: the rest is for
    workers, so that clients who keep connections open cannot keep them away."""
    most = max(1, num_files // 2)
    if most < wanted:
        logger.info(
            "at most %d connections of clients to a port, not limits.max_connections (%d), for only %d files may be open",
            most,
            wanted,
            num_files,
        )
    return min(most, wanted)


def _told(num_files: int) -> int:
    if num_files < _FEW:
        logger.warning(
            "only %d files may be open: enough for about %d event sources and as many files for HTTP; "
            "raise the hard limit (ulimit -Hn, LimitNOFILE in systemd)",
            num_files,
            sockets_within(num_files) // 4,
        )
    return num_files
