"""Bodies on the wire; the field names are the contract. A null stands for a field left out, as in lockd."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from holdfast.common.errors import InvalidBody
from holdfast.common.wire_errors import invalid_body
from holdfast.leases.layer.errors import TooManyRenewals

KEEPALIVE_BATCH_MAX = 1_000

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


class BatchedKeepalive(KeepaliveRequest):
    fencing_token: Int64 | None = Field(default=None, description="The token of the lease; required.")


class KeepaliveBatchRequest(LeaseBody):
    renewals: list[BatchedKeepalive] = Field(json_schema_extra={"maxItems": KEEPALIVE_BATCH_MAX})


def batched_keepalives(body: bytes) -> list[BatchedKeepalive | InvalidBody]:
    """The renewals of a batch; one that is none is an error in its place, and costs the others nothing."""
    try:
        renewals: list[BatchedKeepalive | InvalidBody] = list(
            KeepaliveBatchRequest.model_validate_json(body).renewals
        )
    except ValidationError as error:
        renewals = [_batched(one) for one in _listed(body, error)]
    if len(renewals) > KEEPALIVE_BATCH_MAX:
        raise TooManyRenewals(f"a batch has at most {KEEPALIVE_BATCH_MAX} renewals; send several")
    return renewals


def _listed(body: bytes, error: ValidationError) -> list[object]:
    """The list of the batch, if nothing but its items is wrong."""
    try:
        members: object = from_json(body)
    except ValueError:
        members = None
    renewals = members.get("renewals") if isinstance(members, dict) and len(members) == 1 else None
    if not isinstance(renewals, list):
        raise invalid_body(error) from error
    return renewals[: KEEPALIVE_BATCH_MAX + 1]


def _batched(one: object) -> BatchedKeepalive | InvalidBody:
    if not isinstance(one, dict):
        return InvalidBody("Input should be an object")
    try:
        return BatchedKeepalive.model_validate(one)
    except ValidationError as error:
        return invalid_body(error)


class KeepaliveResult(BaseModel):
    """The end and the token of a lease that was renewed, or the error that `/v1/keepalive` would have answered."""

    expires_at_unix: int | None = None
    fencing_token: int | None = None
    status: int | None = Field(default=None, description="The status of the error.")
    error: str | None = None
    detail: str | None = None
    current_version: int | None = None
    current_etag: str | None = None
    retry_after_seconds: int | None = None


class KeepaliveBatchAnswer(BaseModel):
    renewed: int = Field(description="How many of the results are no errors.")
    results: list[KeepaliveResult] = Field(description="One for each renewal, in their order.")


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
