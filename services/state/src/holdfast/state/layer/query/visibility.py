"""Which keys queries may show at all."""

from typing import Final

from holdfast.state.layer.records_pb2 import Document

DIAGNOSTICS_PREFIX: Final = "lockd-diagnostics/"


def is_visible(key: str, document: Document) -> bool:
    """Whether there is a document that is not hidden."""
    return bool(document.etag) and not document.is_hidden and not key.startswith(DIAGNOSTICS_PREFIX)
