"""Bodies of the coordinators' endpoints; the field names are the contract. Members that are not known are let pass."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.common.wire_errors import invalid_body

Int64 = Annotated[int, Field(ge=-(1 << 63), le=(1 << 63) - 1)]
Term = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]


Body = TypeVar("Body", bound=BaseModel)


def parsed(model: type[Body], text: bytes) -> Body:
    """A body, for handlers that look at their caller first; an empty one is the same as `{}`."""
    if not text:
        return model()
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise invalid_body(error) from error


class TcBody(BaseModel):
    model_config = ConfigDict(strict=True)


class AcquireRequest(TcBody):
    candidate_id: str | None = None
    candidate_endpoint: str | None = None
    term: Term | None = None
    ttl_ms: Int64 | None = None


class RenewRequest(TcBody):
    leader_id: str | None = None
    term: Term | None = None
    ttl_ms: Int64 | None = None


class ReleaseRequest(TcBody):
    leader_id: str | None = None
    term: Term | None = None


class LeaderAnswer(BaseModel):
    leader_id: str | None = None
    leader_endpoint: str | None = None
    term: int | None = None
    expires_at: int | None = Field(default=None, description="Unix time in milliseconds.")


class GrantAnswer(LeaderAnswer):
    granted: bool


class RenewAnswer(LeaderAnswer):
    renewed: bool


class ReleaseAnswer(BaseModel):
    released: bool


class AnnounceRequest(TcBody):
    self_endpoint: str | None = None


class LeaveRequest(TcBody):
    pass


class MembersAnswer(BaseModel):
    endpoints: list[str]
    updated_at_unix: int | None = Field(default=None, description="In milliseconds.")


class AnnounceAnswer(MembersAnswer):
    expires_at_unix: int = Field(description="In milliseconds: until then the member counts.")


class RmRequest(TcBody):
    backend_hash: str | None = None
    endpoint: str | None = None


class BackendAnswer(BaseModel):
    backend_hash: str
    endpoints: list[str]
    updated_at_unix: int = Field(description="In milliseconds.")


class BackendsAnswer(BaseModel):
    backends: list[BackendAnswer]
    updated_at_unix: int | None = Field(default=None, description="In milliseconds.")
