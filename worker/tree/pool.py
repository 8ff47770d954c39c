"""A pool of token slots, counted and not numbered: free + held = capacity."""


class TokenPool:
    """Slots are tokens."""

    __slots__ = ("_capacity", "_free")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free = capacity

    @property
    def capacity(self) -> int:
        """Slots in all."""
        return self._capacity

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self._free

    @property
    def held(self) -> int:
        """Slots in use: cached, reserved or in flight."""
        return self._capacity - self._free

    def take(self, num_tokens: int) -> bool:
        """Take slots; False, with none taken, if fewer are free."""
        if num_tokens > self._free:
            return False
        self._free -= num_tokens
        return True

    def give(self, num_tokens: int) -> None:
        """Give slots back.

        Raises:
            ValueError: more than are held.
        """
        if not 0 <= num_tokens <= self.held:
            raise ValueError(f"{num_tokens} slots given back, {self.held} held")
        self._free += num_tokens
