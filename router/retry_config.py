"""What the operator says of attempts that are repeated."""

from typing import Annotated

from pydantic import Field

from router.config_section import Section
from router.retry_budget import RetryLimits


class RetryConfig(Section):
    """How many attempts the whole fleet may be asked to repeat, so that one that fails is not sent a multiple of its load.
    `limits.max_attempts` bounds those of one request. Beyond the budget a worker's error is passed on at once.

    Attributes:
        share: of the requests that began within the last ten seconds, or are in flight where those are more.
        floor: attempts within ten seconds that may be repeated beside, so that a few requests are not without any.
            With both at 0 nothing is repeated.
    """

    share: Annotated[float, Field(ge=0, le=10)] = 0.2
    floor: Annotated[int, Field(ge=0, le=1_000_000)] = 100

    def limits(self) -> RetryLimits:
        """As the budget takes them."""
        return RetryLimits(self.share, self.floor)
