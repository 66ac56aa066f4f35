"""Bodies on the wire; the field names are the contract."""

from pydantic import BaseModel, ConfigDict, Field


class Metadata(BaseModel):
    query_hidden: bool | None = None


class MetadataRequest(BaseModel):
    """The C client repeats what query and headers say already; those count."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query_hidden: bool | None = None
    namespace: str | None = Field(default=None, description="Has no effect.")
    key: str | None = Field(default=None, description="Has no effect.")
    lease_id: str | None = Field(default=None, description="Has no effect.")
    txn_id: str | None = Field(default=None, description="Has no effect.")
    fencing_token: int | None = Field(default=None, description="Has no effect.")
    if_version: int | None = Field(default=None, description="Has no effect.")


class UpdateAnswer(BaseModel):
    new_version: int
    new_state_etag: str
    bytes: int
    metadata: Metadata


class RemoveAnswer(BaseModel):
    removed: bool
    new_version: int | None = None


class MetadataAnswer(BaseModel):
    namespace: str
    key: str
    version: int
    metadata: Metadata


class AttachmentInfo(BaseModel):
    id: str
    name: str
    size: int
    content_type: str
    created_at_unix: int
    updated_at_unix: int
    plaintext_sha256: str


class AttachmentStaged(BaseModel):
    attachment: AttachmentInfo
    noop: bool | None = None
    version: int


class AttachmentList(BaseModel):
    namespace: str
    key: str
    attachments: list[AttachmentInfo]


class AttachmentDeleted(BaseModel):
    deleted: bool
    version: int


class AttachmentsDeleted(BaseModel):
    deleted: int
    version: int


class MutateRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    namespace: str | None = None
    mutations: list[str] | None = None
