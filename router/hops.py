"""Loops of routers, told by ``Via``: each router adds its own name to what it sends on.

A request that comes back to a router it has passed is refused, and so is one that has passed too many. A
worker whose URL leads back here is found when it is asked for its health.

Source: RFC 9110 §7.6.3.
"""

import os

from router.errors import ErrorKind, FrontDoorError

MAX_HOPS = 8
"""Routers that a request may have passed before."""
LOOP_STATUS = 508
_NAME = "kvroute-"


class Hops:
    """What one router knows of the way of a request.

    Args:
        instance: names this router among all; of a token's characters.
    """

    __slots__ = ("_own", "field")

    def __init__(self, instance: str) -> None:
        self._own = f"{_NAME}{instance}".encode()
        self.field = (b"via", b"1.1 " + self._own)

    def refuse_loops(self, via: bytes) -> None:
        """Look at what ``Via`` says, all its fields in one.

        Raises:
            FrontDoorError: the request has passed here before, or through too many routers.
        """
        if not via:
            return
        if self._own in via:
            raise FrontDoorError(ErrorKind.LOOP, "a worker's URL leads back to this router")
        if via.count(_NAME.encode()) >= MAX_HOPS:
            message = f"the request has passed {MAX_HOPS} routers"
            raise FrontDoorError(ErrorKind.LOOP, message)


def new_hops() -> Hops:
    """Of a router that starts."""
    return Hops(os.urandom(8).hex())
