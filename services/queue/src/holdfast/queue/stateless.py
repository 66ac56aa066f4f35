"""A queue whose process knows nobody who keeps documents: messages work, messages with state do not."""

from collections.abc import Sequence
from typing import NoReturn

from holdfast.common.errors import HoldfastError
from holdfast.storage.layers_pb2 import Lease
from holdfast.storage.leasing import Claim
from holdfast.storage.port import Transaction
from holdfast.storage.resource import Member


class StateUnavailable(HoldfastError):
    """This process delivers messages without state only; `holdfast serve queue` runs one that delivers both."""

    code, status = "state_unavailable", 503


class StatelessNeighbour:
    """The `Leaser` and the `Sidecars` of such a queue."""

    def grant(
        self,
        tx: Transaction,
        member: Member,
        owner: str,
        txn_id: str,
        expires_at_ms: int,
        *,
        is_explicit: bool,
    ) -> Lease:
        self._refuse()

    def extend(self, tx: Transaction, member: Member, claim: Claim, expires_at_ms: int) -> None:
        self._refuse()

    def forget(self, tx: Transaction, member: Member) -> None:
        self._refuse()

    def freed(self, members: Sequence[Member]) -> None:
        return

    def open_sidecar(self, tx: Transaction, member: Member) -> None:
        self._refuse()

    def forget_sidecar(self, tx: Transaction, member: Member, txn_id: str) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StateUnavailable(
            "this process delivers messages without state only; run `holdfast serve queue`"
        )
