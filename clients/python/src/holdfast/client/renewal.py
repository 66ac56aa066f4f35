"""What a keeper renews: a lease of a key, or of a message."""

from typing import Protocol

from holdfast.client.errors import ClientError, LeaseLost
from holdfast.client.flow import Flow


class Renewable(Protocol):
    """Something that ends by itself unless it is renewed in time."""

    @property
    def name(self) -> str:
        """For the name of the task that renews it."""
        ...

    def remaining_s(self) -> float | None: ...

    def keepalive_in_s(self, *, after_failure: bool = False) -> float: ...

    def keepalive(self) -> Flow[int]: ...

    def verdict(self, problem: ClientError) -> LeaseLost | None: ...

    def lose(self, because: LeaseLost) -> None: ...
