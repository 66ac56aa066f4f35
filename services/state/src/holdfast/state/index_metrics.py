"""The metrics of queries and of the index behind them."""

from holdfast.common.metrics import Registry
from holdfast.common.operation_metrics import OperationMetrics


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
