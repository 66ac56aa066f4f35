"""What reading and writing state refuses beyond the lease check."""

from holdfast.common.errors import HoldfastError
from holdfast.leases.layer.errors import KeyRefusal


class VersionConflict(KeyRefusal):
    """The version is not the one the caller expects."""

    code, status = "version_conflict", 409


class EtagMismatch(KeyRefusal):
    """The document is not the one the caller expects."""

    code, status = "etag_mismatch", 409


class MissingParams(HoldfastError):
    """Get without a key, or with neither a lease nor `public=1`."""

    code, status = "missing_params", 400


class InvalidVersion(HoldfastError):
    """`X-If-Version` is no int64."""

    code, status = "invalid_version", 400


class InvalidMetadata(HoldfastError):
    """No usable metadata field, or one that is not known."""

    code, status = "invalid_metadata", 400


class InvalidExpectedSha256(HoldfastError):
    """`X-Expected-SHA256` is not 64 hex digits."""

    code, status = "invalid_expected_sha256", 400


class InvalidExpectedBytes(HoldfastError):
    """`X-Expected-Bytes` is no size."""

    code, status = "invalid_expected_bytes", 400


class ExpectedSha256Mismatch(HoldfastError):
    """The body is not the one the caller meant to send."""

    code, status = "expected_sha256_mismatch", 409


class ExpectedBytesMismatch(HoldfastError):
    """The body has another size than the caller meant to send."""

    code, status = "expected_bytes_mismatch", 409


class TransactionTooLarge(HoldfastError):
    """The transaction has staged as much as one commit takes: release it, then go on in the next one."""

    code, status = "transaction_too_large", 413


class MissingAttachment(HoldfastError):
    """No name was given, or neither a name nor an id."""

    code, status = "missing_attachment", 400


class InvalidAttachment(HoldfastError):
    """A name or a content type that is too long, no UTF-8, or has control characters where it may have none."""

    code, status = "invalid_attachment", 400


class InvalidMaxBytes(HoldfastError):
    """`max_bytes` is no size."""

    code, status = "invalid_max_bytes", 400


class AttachmentNotFound(HoldfastError):
    """This caller sees no such attachment."""

    code, status = "attachment_not_found", 404


class TooManyAttachments(HoldfastError):
    """The key has as many attachments as a key may have."""

    code, status = "too_many_attachments", 409


class AttachmentTooLarge(HoldfastError):
    """The upload is above its limit; nothing of it was staged."""

    code, status = "attachment_too_large", 413


class DocumentTooLarge(HoldfastError):
    """The mutated document would be above the limit of JSON documents; nothing was staged."""

    code, status = "document_too_large", 413


class MutationUnavailable(HoldfastError):
    """Mutating a large document took too long or too much; nothing was staged. Fewer wildcards help, or an update."""

    code, status = "mutation_unavailable", 503


class InvalidCursor(HoldfastError):
    """The cursor is not one that this query's engine gave out."""

    code, status = "invalid_cursor", 400


class InvalidEngine(HoldfastError):
    """The engine is none of `auto`, `index` and `scan`."""

    code, status = "invalid_engine", 400


class InvalidRefresh(HoldfastError):
    """`refresh` is something else than `wait_for`."""

    code, status = "invalid_refresh", 400


class InvalidReturn(HoldfastError):
    """`return` is neither `keys` nor `documents`."""

    code, status = "invalid_return", 400


class InvalidFields(HoldfastError):
    """`fields` is no JSON object."""

    code, status = "invalid_fields", 400


class QueryEngineUnavailable(HoldfastError):
    """The namespace is not configured for this engine; ask for `auto`, or change `/v1/namespace`."""

    code, status = "query_engine_unavailable", 400


class InvalidMode(HoldfastError):
    """The mode of a flush is neither `wait` nor `async`."""

    code, status = "invalid_mode", 400


class IndexUnavailable(HoldfastError):
    """The index of this namespace was turned off."""

    code, status = "index_unavailable", 501


class InvalidNamespaceRequest(HoldfastError):
    """The configuration names no engines, or one that is not known."""

    code, status = "invalid_namespace_request", 400


class NamespaceConfigConflict(HoldfastError):
    """The configuration is not the one the caller expects."""

    code, status = "namespace_config_conflict", 409


class QueryUnavailable(HoldfastError):
    """Matching a large document took too long or too much memory; a narrower selector may avoid it."""

    code, status = "query_unavailable", 503


class InvalidPrefix(HoldfastError):
    """A prefix that no key begins with: other characters than a-z 0-9 . _ - /, an empty segment, or too long."""

    code, status = "invalid_prefix", 400


class InvalidAfter(HoldfastError):
    """`after`, or `Last-Event-ID`, is no revision."""

    code, status = "invalid_after", 400


class InvalidFormat(HoldfastError):
    """The format of a watch is neither `sse` nor `ndjson`."""

    code, status = "invalid_format", 400
