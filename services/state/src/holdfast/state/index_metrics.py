"""The metrics of the index."""

from holdfast.common.metrics import Registry


class IndexMetrics:
    """How far the background work has come."""

    def __init__(self, registry: Registry) -> None:
        self.working = registry.gauge(
            "holdfast.index.working", "Namespaces whose index is cleared or built now."
        ).labels()
        self.built = registry.counter(
            "holdfast.index.built", "Documents that were added to an index in the background.", ("namespace",)
        )
