"""The ways to find matching documents."""

from enum import StrEnum

from holdfast.storage.port import Store


class Engine(StrEnum):
    """How matching documents are found."""

    INDEX = "index"
    SCAN = "scan"


def preferred_by_default(store: Store) -> Engine:
    """A store in memory is small and short-lived: an index would cost it more than it saves."""
    return Engine.SCAN if store.url.startswith("mem://") else Engine.INDEX
