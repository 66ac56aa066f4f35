"""A key as the holder of its lease finds it, read and staged in the very transaction that acts on it."""

from typing import NamedTuple

from holdfast.leases.layer.errors import KeyRefusal
from holdfast.leases.layer.grant import Claim
from holdfast.leases.layer.records import LEASES
from holdfast.leases.layer.records_pb2 import Lease
from holdfast.leases.layer.rules import check_claim, current_of
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.staging import NOTHING
from holdfast.state.layer.errors import TransactionTooLarge
from holdfast.state.layer.records import DOCUMENTS, STAGE_COSTS, STAGES
from holdfast.state.layer.records_pb2 import Document, Stage, StageCost
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Member

# A decision is one batch. What is left of its 8 MiB is for the leases of the transaction and for small changes.
STAGED_BYTES_MAX = 6 << 20


class Holding(NamedTuple):
    """What is committed under a key, and what its holder has staged."""

    member: Member
    lease: Lease
    document: Document
    stage: Stage | None

    @property
    def version(self) -> int:
        """As the holder sees it."""
        return self.stage.version if self.stage is not None else self.document.version


def read_holding(tx: Transaction, member: Member, claim: Claim, now_ms: int) -> Holding:
    """Refuses a caller that does not hold the lease at this moment."""
    tx.prefetch(lambda: _reads(member, claim))
    lease = LEASES.get(tx, *member)
    document = DOCUMENTS.get(tx, *member) or NOTHING
    try:
        held = check_claim(claim, lease, now_ms)
    except KeyRefusal as refusal:
        refusal.current = current_of(document)
        raise
    return Holding(member, held, document, STAGES.get(tx, held.txn_id, *member))


def _reads(member: Member, claim: Claim) -> list[bytes]:
    keys = [LEASES.key(*member), DOCUMENTS.key(*member)]
    txn_id = claim.txn_id
    return [*keys, STAGES.key(txn_id, *member), STAGE_COSTS.key(txn_id)] if txn_id else keys


def write_stage(tx: Transaction, holding: Holding, stage: Stage) -> None:
    """Stage, unless the transaction would become too large to be decided."""
    lease = holding.lease
    cost_bytes = stage.attachment_cost_bytes
    if lease.is_explicit:
        # Alone, a document always fits; only together with those of other keys it may not.
        cost_bytes += len(stage.content.inline)
    charged_bytes = holding.stage.charged_bytes if holding.stage is not None else 0
    if cost_bytes != charged_bytes:
        _charge(tx, lease.txn_id, cost_bytes - charged_bytes)
        stage.charged_bytes = cost_bytes
    STAGES.put(tx, stage, lease.txn_id, *holding.member, blobs=staging.blobs_of(stage))


def _charge(tx: Transaction, txn_id: str, more_bytes: int) -> None:
    cost = STAGE_COSTS.get(tx, txn_id) or StageCost()
    cost.bytes += more_bytes
    if more_bytes > 0 and cost.bytes > STAGED_BYTES_MAX:
        raise TransactionTooLarge("the transaction has staged as much as one commit takes; release it first")
    if cost.bytes:
        STAGE_COSTS.put(tx, cost, txn_id)
    else:
        STAGE_COSTS.delete(tx, txn_id)
