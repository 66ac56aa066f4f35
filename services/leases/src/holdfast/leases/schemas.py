"""Bodies on the wire; the field names are the contract. A null stands for a field left out, as in lockd."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]


class LeaseBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HeldLeaseBody(LeaseBody):
    """What names a lease; the C client repeats its token here."""

    namespace: str | None = None
    key: str | None = None
    lease_id: str | None = None
    txn_id: str | None = None
    fencing_token: Int64 | None = Field(default=None, description="Has no effect: the header counts.")


class AcquireRequest(LeaseBody):
    namespace: str | None = None
    key: str | None = Field(default=None, description="Left out: the server makes one up.")
    ttl_seconds: Int64 | None = Field(
        default=None, description="0: the default; above the maximum: the maximum."
    )
    owner: str | None = None
    block_seconds: Int64 | None = Field(
        default=None, description="-1: no wait, 0: for ever, n: at most n seconds."
    )
    if_not_exists: bool | None = None
    txn_id: str | None = Field(default=None, description="Join this transaction.")


class AcquireAnswer(BaseModel):
    namespace: str
    lease_id: str
    txn_id: str
    key: str
    owner: str
    expires_at_unix: int
    version: int
    state_etag: str | None = None
    fencing_token: int
    correlation_id: str


class KeepaliveRequest(HeldLeaseBody):
    ttl_seconds: Int64 | None = None


class KeepaliveAnswer(BaseModel):
    expires_at_unix: int


class ReleaseRequest(HeldLeaseBody):
    rollback: bool | None = None


class ReleaseAnswer(BaseModel):
    released: bool


class Metadata(BaseModel):
    query_hidden: bool | None = None


class DescribeAnswer(BaseModel):
    namespace: str
    key: str
    owner: str | None = None
    lease_id: str | None = None
    expires_at_unix: int | None = None
    version: int
    state_etag: str | None = None
    updated_at_unix: int | None = None
    metadata: Metadata
