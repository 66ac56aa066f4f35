"""A request whose outcome is told when it is recorded."""

from collections.abc import Callable

from holdfast.leases.layer.locks.records import Outcome, Pending, Refused, Session, Tell, Waiter

Act = Callable[[float], Waiter | Outcome]
"""Does it on the table at that time. It may run again, after what it did was taken back."""


class Request(Pending):
    """One request for one key. Without a session it is the service's own."""

    __slots__ = (
        "act",
        "is_cancelled",
        "is_finished",
        "key",
        "outcome",
        "session",
        "tell",
        "timeout_s",
        "waiter",
    )

    def __init__(
        self, key: bytes, session: Session | None = None, tell: Tell | None = None, timeout_s: float = 0
    ) -> None:
        self.key = key
        self.session = session
        self.tell = tell
        self.timeout_s = timeout_s
        self.is_cancelled = False
        self.is_finished = False
        self.act: Act | None = None
        self.outcome: Outcome = Refused.UNAVAILABLE
        self.waiter: Waiter | None = None
        """Its place in the queue, if it has to wait."""

    @property
    def is_over(self) -> bool:
        """Its client does not want the outcome any more: it is not begun."""
        return self.is_cancelled or (self.session is not None and self.session.has_ended)

    @property
    def waits(self) -> bool:
        return self.waiter is not None

    def hurry(self) -> None:
        self.timeout_s = 0

    def run(self, now_s: float) -> None:
        self.waiter = None
        self.outcome = Refused.UNAVAILABLE
        if self.is_over or self.act is None:
            return
        found = self.act(now_s)
        if isinstance(found, Waiter):
            self.waiter = found
        else:
            self.outcome = found

    def finish(self, outcome: Outcome) -> None:
        """Tell it, once."""
        if self.is_finished:
            return
        self.is_finished = True
        self.outcome = outcome
        self.act = None
        if self.tell is not None and not self.is_over:
            self.tell(outcome)
