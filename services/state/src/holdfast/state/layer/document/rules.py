"""The rules of documents: plain functions of a storage transaction, what is asked for, and the time.

No clock, no waiting, no I/O: what a function does not read through its transaction it is given. What a change makes of a
document and of its stage is decided in `staging.py`.

    committed --update, hide, remove: the holder of the lease stages--> staged
    staged --apply: the transaction is committed--> published, with the index entries of the document
    staged --apply: the transaction is rolled back--> dropped
"""

from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.attachment import records as attachment_records
from holdfast.state.layer.document import staging
from holdfast.state.layer.document.holding import Holding, read_holding, write_stage
from holdfast.state.layer.document.staging import Expectation, View
from holdfast.state.layer.index.writer import IndexWriter
from holdfast.state.layer.records import DOCUMENTS, EMPTY, STAGES
from holdfast.state.layer.records_pb2 import Document, Stage
from holdfast.storage.intake import Content, payload_of
from holdfast.storage.port import Transaction
from holdfast.txn.layer.port import Decision, Member

# -- what the holder of a lease sees and stages


def read(tx: Transaction, member: Member, claim: Claim, expectation: Expectation, now_ms: int) -> View:
    """The holder's own staged changes over what is committed."""
    holding = _expected(tx, member, claim, expectation, now_ms)
    return staging.staged_view(holding.document, holding.stage)


def update(
    tx: Transaction,
    member: Member,
    claim: Claim,
    content: Content,
    expectation: Expectation,
    now_ms: int,
    *,
    is_hidden: bool | None = None,
) -> View:
    return _stage_content(tx, _expected(tx, member, claim, expectation, now_ms), content, is_hidden)


def replace(
    tx: Transaction,
    member: Member,
    claim: Claim,
    content: Content,
    seen: View,
    now_ms: int,
    *,
    is_hidden: bool | None = None,
) -> View | None:
    """As update, if the holder still sees what it saw; None if it does not."""
    holding = read_holding(tx, member, claim, now_ms)
    if staging.staged_view(holding.document, holding.stage) != seen:
        return None
    return _stage_content(tx, holding, content, is_hidden)


def hide(
    tx: Transaction, member: Member, claim: Claim, is_hidden: bool, expectation: Expectation, now_ms: int
) -> View:
    holding = _expected(tx, member, claim, expectation, now_ms)
    staged = staging.hidden(holding.document, holding.stage, is_hidden)
    write_stage(tx, holding, staged)
    return staging.staged_view(holding.document, staged)


def remove(
    tx: Transaction, member: Member, claim: Claim, expectation: Expectation, now_ms: int
) -> tuple[bool, int]:
    """Whether there was something to remove, and the version that its removal will have."""
    holding = _expected(tx, member, claim, expectation, now_ms)
    staged = staging.removed(holding.document, holding.stage)
    if staged is None:
        return False, holding.version
    attachment_records.drop_staged(tx, holding.lease.txn_id, member, holding.stage)
    write_stage(tx, holding, staged)
    return True, staged.version


def _expected(
    tx: Transaction, member: Member, claim: Claim, expectation: Expectation, now_ms: int
) -> Holding:
    holding = read_holding(tx, member, claim, now_ms)
    staging.check(expectation, holding.document, holding.stage)
    return holding


def _stage_content(tx: Transaction, holding: Holding, content: Content, is_hidden: bool | None) -> View:
    document = holding.document
    staged = staging.updated(document, holding.stage, payload_of(content), content.sha256.hex())
    if is_hidden is not None:
        staged = staging.hidden(document, staged, is_hidden)
    write_stage(tx, holding, staged)
    return staging.staged_view(document, staged)


# -- documents that belong to something of another service, or to a key that is not used any more


def open_message_state(tx: Transaction, member: Member) -> None:
    """A document without content that queries do not show, unless there is one already."""
    if DOCUMENTS.get(tx, *member) is None:
        DOCUMENTS.put(tx, Document(is_hidden=True), *member)


def forget_message_state(
    tx: Transaction, member: Member, txn_id: str, now_ms: int, index: IndexWriter
) -> None:
    """The document goes, and all that belongs to it or is staged for it under this transaction."""
    staging.apply(tx, txn_id, Decision.ROLLBACK, [member], now_ms, index)
    document = DOCUMENTS.get(tx, *member)
    if document is not None:
        forget_document(tx, member, document, txn_id, now_ms, index)


def forget_document(
    tx: Transaction, member: Member, document: Document, txn_id: str, now_ms: int, index: IndexWriter
) -> None:
    """As a removal, under a transaction id that has staged nothing; and not even the version is left."""
    removal = staging.removed(document, Stage(version=document.version))
    assert removal is not None, "something staged can always be removed"
    STAGES.put(tx, removal, txn_id, *member)
    staging.apply(tx, txn_id, Decision.COMMIT, [member], now_ms, index)
    DOCUMENTS.delete(tx, *member)
    tx.delete(EMPTY.key(*member))
