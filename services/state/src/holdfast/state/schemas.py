"""Bodies on the wire; the field names are the contract."""

from pydantic import BaseModel, ConfigDict


class Metadata(BaseModel):
    query_hidden: bool | None = None


class MetadataRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    query_hidden: bool | None = None


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
