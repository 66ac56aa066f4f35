"""The metrics of published documents in memory, of keys, attachments, retention, watches, queries and the index behind them."""

from typing import Any

from holdfast.common.telemetry.metrics import OperationMetrics, Registry
from holdfast.state.layer.document.published import PublishedCache
from holdfast.state.layer.kv.port import KeySpace
from holdfast.state.layer.watch.hub import EventHub


class AttachmentMetrics:
    """Calls by how they ended, and how much they moved."""

    def __init__(self, registry: Registry) -> None:
        def operation(name: str, help_text: str) -> OperationMetrics:
            return OperationMetrics(registry, f"holdfast.attachments.{name}", help_text)

        self.attach = operation("attach", "Uploads of attachments.")
        self.retrieve = operation("retrieve", "Downloads of attachments, until their content begins.")
        self.list = operation("list", "Lists of attachments.")
        self.delete = operation("delete", "Deletions of one attachment.")
        self.delete_all = operation("delete_all", "Deletions of all attachments of a key.")
        self.attached_bytes = registry.counter(
            "holdfast.attachments.attach.bytes", "Bytes of staged attachments.", unit="By"
        ).labels()
        self.retrieved_bytes = registry.counter(
            "holdfast.attachments.retrieve.bytes", "Bytes of attachments that were asked for.", unit="By"
        ).labels()
        self.listed_items = registry.counter(
            "holdfast.attachments.list.items", "Attachments in lists."
        ).labels()
        self.deleted_items = registry.counter(
            "holdfast.attachments.delete_all.items", "Attachments that were deleted with all of their key."
        ).labels()


def show_published(cache: PublishedCache[Any], registry: Registry) -> None:
    """How often public reads are answered from memory, and what that takes."""
    registry.counter(
        "holdfast.state.cache.hits",
        "Public reads that were answered from memory.",
        callback=lambda: cache.hits,
    )
    registry.counter(
        "holdfast.state.cache.misses",
        "Reads without a lease whose answer was not in memory, or is no document.",
        callback=lambda: cache.misses,
    )
    registry.gauge(
        "holdfast.state.cache.bytes",
        "Bytes that published documents take in memory.",
        unit="By",
        callback=lambda: cache.size_bytes,
    )


def show_keys(keys: KeySpace, registry: Registry) -> None:
    """Who watches the key space, what ends by itself there, and how far it has come as this process knows."""
    registry.gauge(
        "holdfast.kv.watchers", "Watches of keys that are open.", callback=lambda: float(keys.watchers)
    )
    registry.gauge(
        "holdfast.kv.leases", "Leases of keys that are not over.", callback=lambda: float(len(keys.leases))
    )
    registry.gauge(
        "holdfast.kv.revision",
        "The revision of the key space, as it was last read; 0 until then.",
        callback=lambda: float(keys.last_revision),
    )


class RetentionMetrics:
    """What was removed because it was not used."""

    def __init__(self, registry: Registry) -> None:
        self.documents = registry.counter(
            "holdfast.retention.documents.removed",
            "Documents that were removed because their key was not used.",
        ).labels()
        self.freed_bytes = registry.counter(
            "holdfast.retention.freed.bytes",
            "Bytes of the documents and attachments that retention removed.",
            unit="By",
        ).labels()


class WatchMetrics:
    """Who watches, as of now. `show` is called when there is a hub: before that, nobody does."""

    def __init__(self, registry: Registry) -> None:
        self._hub: EventHub | None = None
        registry.gauge(
            "holdfast.state.watchers",
            "Open watches of documents and leases.",
            callback=lambda: 0 if self._hub is None else len(self._hub),
        )
        registry.counter(
            "holdfast.state.watch.fallbacks",
            "Watches that were too slow for their buffer and went on from the history.",
            callback=lambda: 0 if self._hub is None else self._hub.fallbacks,
        )

    def show(self, hub: EventHub) -> None:
        self._hub = hub


class IndexMetrics:
    """Queries by how they ended, and how far the background work has come."""

    def __init__(self, registry: Registry) -> None:
        self.query = OperationMetrics(registry, "holdfast.query", "Queries, until their documents begin.")
        self.working = registry.gauge(
            "holdfast.index.working", "Namespaces whose index is cleared or built now."
        ).labels()
        self.built = registry.counter(
            "holdfast.index.built", "Documents that were added to an index in the background.", ("namespace",)
        )
        self.summaries = registry.counter(
            "holdfast.index.summaries", "Summaries of large documents that were made in the background."
        ).labels()
