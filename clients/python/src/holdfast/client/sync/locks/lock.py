# Generated from aio/locks/lock.py by generate_sync.py: change that, then run `make sync-client`.
"""A lock that is held, or a slot of a semaphore."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.client.errors import ClientError, LeaseLost
from holdfast.client.locks.claim import LockClaim, LockGrant
from holdfast.client.session.renewal import Renewal
from holdfast.client.sync.concurrency import Event, Lock
from holdfast.client.sync.renewer import Renewer
from holdfast.client.sync.transport import Transport


class HeldLock:
    """Renewed in the background when a third of its lease is over; released at the end of its block.

    `lost` is set when the lock is gone or can't be proved any more, as when its lease ended or an operator freed it: what is
    done after that is not protected. A block whose lock was lost ends with LeaseLost. `fencing_token` is greater than that of
    every earlier holder of the key: what is written to elsewhere can refuse a holder that did not notice.
    """

    def __init__(
        self, transport: Transport, claim: LockClaim, renewer: Renewer, *, on_end: Callable[[], object]
    ) -> None:
        self.lost = Event()
        self._transport = transport
        self._claim = claim
        self._renewer = renewer
        self._tell_end = on_end
        self._ending = Lock()
        self._renewal: Renewal | None = None  # Before the claim may end, which may be before `add` returns.
        claim.on_end = self._on_end
        self._renewal = renewer.add(claim)

    @property
    def grant(self) -> LockGrant:
        """Who this is to the server."""
        return self._claim.grant

    @property
    def key(self) -> str:
        return self._claim.grant.key

    @property
    def fencing_token(self) -> int:
        return self._claim.grant.fencing_token

    @property
    def is_ended(self) -> bool:
        """Released or lost."""
        return self._claim.is_ended

    @property
    def lost_because(self) -> LeaseLost | None:
        """Why `lost` is set."""
        return self._claim.lost_because

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.release()
            return
        try:
            self.release()
        except ClientError as problem:
            error.add_note(f"holdfast: the lock was not released and will expire: {problem}")

    def check_held(self) -> None:
        """Raise LeaseLost if the lock is lost, also if no renewal has noticed yet that its time is over."""
        self._claim.check_held()

    def renew(self, ttl_s: float | None = None) -> int:
        """Count the lease from now, by default as long as before; gives its seconds."""
        self._claim.check_held()
        try:
            seconds = self._transport.run(self._claim.keepalive(ttl_s))
        except LeaseLost as problem:
            self._claim.lose(problem)
            raise
        if self._renewal is not None:
            self._renewer.move(self._renewal)
        return seconds

    def release(self) -> None:
        """End it. A second time it does nothing. Raises LeaseLost if it was lost before."""
        with self._ending:
            if self._claim.is_ended:
                if self._claim.lost_because is not None:
                    raise self._claim.lost_because
                return
            self._stop_renewal()  # A renewal after the release would look like a loss.
            try:
                self._transport.run(self._claim.release())
            except LeaseLost as problem:
                self._claim.lose(problem)
                raise
            self._claim.end()
            self._on_end()

    def detach(self) -> LockGrant:
        """Leave it to the end of its lease, or to another holder of its token: no more renewals, no release."""
        self._claim.end()
        self._on_end()
        return self._claim.grant

    def _stop_renewal(self) -> None:
        if self._renewal is not None:
            self._renewer.discard(self._renewal)

    def _on_end(self) -> None:
        self._stop_renewal()
        if self._claim.lost_because is not None:
            self.lost.set()
        self._tell_end()
