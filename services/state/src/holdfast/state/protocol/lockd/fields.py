"""What the state endpoints read from headers and query, in the order in which they refuse it."""

import re
from typing import Final

from holdfast.common.express.message import Request
from holdfast.common.fields import MissingKey, MissingLease, fencing_token, key_of, namespace_of, parse_int64
from holdfast.leases.layer.errors import MissingTxn
from holdfast.leases.layer.grant import Claim
from holdfast.state.layer.document.intake import ExpectedBody
from holdfast.state.layer.document.staging import Expectation
from holdfast.state.layer.errors import (
    InvalidExpectedBytes,
    InvalidExpectedSha256,
    InvalidMetadata,
    InvalidVersion,
)
from holdfast.txn.layer.port import Member

CHECKED_BY_HANDLER: Final = 1 << 62
"""As the limit of a body: the endpoint itself refuses what is too large, in its place in the order of checks."""

TAGS_CHARS_MAX: Final = 8192
"""A longer list of entity tags is not looked at: a hundred of ours fit."""

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_ENTITY_TAG = re.compile(r'[ \t,]*+(?:W/)?+(?:"([^"\x00-\x20\x7f]*+)"|([^",\x00-\x20\x7f]++))[ \t]*+(?:,|\Z)')
_GO_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def spelled_of(request: Request) -> str:
    spelled = request.query("key") or ""
    if not spelled.strip():
        raise MissingKey("key is required")
    return spelled


def member_of(request: Request, namespace_default: str) -> Member:
    spelled = spelled_of(request)
    return Member(namespace_of(request.query("namespace"), namespace_default), key_of(spelled))


def claim_of(request: Request) -> Claim:
    """Lease, transaction and token, all of them: what every staging endpoint needs."""
    lease_id = request.header(b"x-lease-id")
    if not lease_id:
        raise MissingLease("X-Lease-ID required")
    txn_id = request.header(b"x-txn-id")
    if not txn_id:
        raise MissingTxn("X-Txn-ID required")
    return Claim(lease_id, fencing_token(request), txn_id)


def expectation_of(request: Request) -> Expectation:
    text = request.header(b"x-if-version")
    version = parse_int64(text) if text else None
    if text and version is None:
        raise InvalidVersion(f"X-If-Version {text[:50]!r} is no int64")
    etag = (request.header(b"x-if-state-etag") or "").strip('" \t')
    return Expectation(version, etag or None)


def is_named(etag: str, if_none_match: str | None) -> bool:
    """Whether the header names this ETag of a document, or any: tags are "quoted", W/"weak", or bare as we send ours.

    What is malformed names nothing, and neither does what follows it: the reader just gets the document.
    """
    if not if_none_match or len(if_none_match) > TAGS_CHARS_MAX:
        return False
    if etag not in if_none_match:
        return if_none_match == "*"
    at = 0
    while tag := _ENTITY_TAG.match(if_none_match, at):
        if etag in tag.groups():
            return True
        at = tag.end()
    return False


def announced_bytes(request: Request) -> int:
    """The length that the head of the request tells; 0 when it tells none."""
    return int(request.header(b"content-length") or 0)


def hidden_of(request: Request) -> bool | None:
    text = request.header(b"x-lockd-meta-query-hidden")
    if not text:
        return None
    if text not in _GO_BOOLEANS:
        raise InvalidMetadata(f"X-Lockd-Meta-Query-Hidden {text[:50]!r} is neither true nor false")
    return _GO_BOOLEANS[text]


def expected_body(request: Request) -> ExpectedBody:
    digest = request.header(b"x-expected-sha256")
    if digest and not _SHA256.fullmatch(digest):
        raise InvalidExpectedSha256("X-Expected-SHA256 must be 64 hex digits")
    text = request.header(b"x-expected-bytes")
    size_bytes = parse_int64(text) if text else None
    if text and (size_bytes is None or size_bytes < 0):
        raise InvalidExpectedBytes("X-Expected-Bytes must be a size")
    return ExpectedBody(size_bytes, digest.lower() if digest else None)
