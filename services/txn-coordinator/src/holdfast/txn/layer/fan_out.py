"""What the coordinator needs to deliver a decision to participants on other stores."""

from typing import NamedTuple, Protocol

from holdfast.txn.layer.records_pb2 import TxnRecord


class Delivered(NamedTuple):
    """The islands that a decision has reached, and what was wrong with the others."""

    reached: list[str]
    problems: list[str]


class FanOut(Protocol):
    """Delivers what is recorded to participants on other stores."""

    async def deliver(self, txn_id: str, record: TxnRecord) -> Delivered:
        """One round to every island that the decision has not reached; never raises for one that fails."""
        ...


class NoFanOut:
    """There is one store: what is not here is nowhere."""

    async def deliver(self, txn_id: str, record: TxnRecord) -> Delivered:
        missing = sorted({one.backend_hash for one in record.participants if not one.is_applied})
        return Delivered([], [f"({one}): no endpoint" for one in missing])
