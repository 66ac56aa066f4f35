"""What reading and writing state refuses beyond the lease check."""

from holdfast.common.errors import HoldfastError
from holdfast.storage.leasing import KeyRefusal


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
