"""Bodies on the wire; the field names are the contract. Unknown fields are ignored here, a null is a field left out."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]
Uint64 = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]


class TxnBody(BaseModel):
    model_config = ConfigDict(strict=True)


class ParticipantBody(TxnBody):
    namespace: str | None = None
    key: str | None = None
    backend_hash: str | None = Field(default=None, description="The island; left out: this one.")


class DecideRequest(TxnBody):
    txn_id: str | None = None
    state: str | None = Field(default=None, description="pending, commit or rollback.")
    participants: list[ParticipantBody] | None = None
    expires_at_unix: Int64 | None = Field(default=None, description="Pending: rolled back from then on.")
    tc_term: Uint64 | None = None
    target_backend_hash: str | None = Field(default=None, description="The island that this is meant for.")


class ReplayRequest(TxnBody):
    txn_id: str | None = None


class DecideAnswer(BaseModel):
    txn_id: str
    state: str = Field(description="What is recorded; it may differ from what was asked for.")


class ListedParticipant(BaseModel):
    namespace: str
    key: str
    backend_hash: str | None = None
    applied: bool | None = None


class ListedTransaction(BaseModel):
    txn_id: str
    state: str
    in_doubt: bool = Field(description="Decided, but not applied everywhere yet.")
    age_seconds: int
    expires_at_unix: int | None = None
    tc_term: int | None = None
    participants: list[ListedParticipant]


class ListAnswer(BaseModel):
    transactions: list[ListedTransaction]
    truncated: bool | None = None
