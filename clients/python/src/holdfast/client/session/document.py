"""What answers hold, as values: documents, results of writes, descriptions, attachments."""

import json
from dataclasses import dataclass
from typing import Any

from holdfast.client.wire.call import Answer, Members, integer_of


@dataclass(frozen=True, slots=True)
class State:
    """A document with its version and ETag at the time of reading."""

    content: bytes
    version: int
    etag: str

    def json(self) -> Any:
        """The decoded document."""
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A staged document: it becomes visible when the lease is released."""

    version: int
    etag: str
    size_bytes: int
    query_hidden: bool

    @classmethod
    def read(cls, answer: Answer) -> "WriteResult":
        members = answer.members()
        return cls(
            version=members.number("new_version"),
            etag=members.text("new_state_etag"),
            size_bytes=members.number("bytes"),
            query_hidden=members.inner("metadata").boolean("query_hidden"),
        )


@dataclass(frozen=True, slots=True)
class Description:
    """What any client may know of a key; lease members are empty when it is not held."""

    namespace: str
    key: str
    version: int
    etag: str
    owner: str
    lease_id: str
    expires_at_unix: int
    updated_at_unix: int
    query_hidden: bool
    raw: dict[str, Any]

    @classmethod
    def read(cls, answer: Answer) -> "Description":
        members = answer.members()
        return cls(
            namespace=members.text("namespace"),
            key=members.text("key"),
            version=members.number("version"),
            etag=members.text("state_etag"),
            owner=members.text("owner"),
            lease_id=members.text("lease_id"),
            expires_at_unix=members.number("expires_at_unix"),
            updated_at_unix=members.number("updated_at_unix"),
            query_hidden=members.inner("metadata").boolean("query_hidden"),
            raw=dict(members.raw),
        )


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment of a key."""

    id: str
    name: str
    size_bytes: int
    content_type: str
    created_at_unix: int
    updated_at_unix: int
    sha256: str = ""

    @classmethod
    def from_members(cls, members: Members) -> "Attachment":
        return cls(
            id=members.text("id"),
            name=members.text("name"),
            size_bytes=members.number("size"),
            content_type=members.text("content_type"),
            created_at_unix=members.number("created_at_unix"),
            updated_at_unix=members.number("updated_at_unix"),
            sha256=members.text("plaintext_sha256"),
        )

    @classmethod
    def from_headers(cls, answer: Answer) -> "Attachment":
        headers = answer.headers
        return cls(
            id=headers.get("x-attachment-id", ""),
            name=headers.get("x-attachment-name", ""),
            size_bytes=integer_of(headers.get("x-attachment-size")) or 0,
            content_type=headers.get("content-type", ""),
            created_at_unix=integer_of(headers.get("x-attachment-created-at")) or 0,
            updated_at_unix=integer_of(headers.get("x-attachment-updated-at")) or 0,
            sha256=headers.get("x-attachment-sha256", ""),
        )


@dataclass(frozen=True, slots=True)
class PutResult:
    """A staged upload; `is_noop` when the name was taken and must not be overwritten."""

    attachment: Attachment
    version: int
    is_noop: bool


@dataclass(frozen=True, slots=True)
class RemoveResult:
    """A staged removal; `is_removed` is false when there was nothing to remove."""

    is_removed: bool
    version: int
