"""Our metrics registry in OpenTelemetry's words; imported only while telemetry is on."""

from time import time_ns
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from holdfast.common.telemetry.metrics import AnyFamily, Histogram, Registry

_NOT_KEPT = cast("float", None)  # Optional on the wire: the registry keeps no least and greatest value.


class Conversion:
    """Snapshots of a registry. Instruments that are observed cannot be histograms, so the points are made here."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("holdfast")
        self._start_ns = time_ns()

    def of(self, registry: Registry) -> MetricsData:
        """All metrics as they are now."""
        now_ns = time_ns()
        metrics = [self._metric(family, now_ns) for family in registry.families()]
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        return MetricsData(
            resource_metrics=[ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")]
        )

    def _metric(self, family: AnyFamily, now_ns: int) -> Metric:
        numbers: list[NumberDataPoint] = []
        histograms: list[HistogramDataPoint] = []
        for values, child in family.children():
            attributes = dict(zip(family.label_names, values, strict=True))
            if isinstance(child, Histogram):
                histograms.append(self._histogram(child, attributes, now_ns))
            else:
                numbers.append(NumberDataPoint(attributes, self._start_ns, now_ns, child.value))
        data: Gauge | Sum | HistogramData
        if family.kind == "histogram":
            data = HistogramData(histograms, AggregationTemporality.CUMULATIVE)
        elif family.kind == "counter":
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        else:
            data = Gauge(numbers)
        return Metric(name=family.name, description=family.help_text, unit=family.unit, data=data)

    def _histogram(self, child: Histogram, attributes: dict[str, str], now_ns: int) -> HistogramDataPoint:
        counts = list(child.counts)
        return HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._start_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=child.sum,
            bucket_counts=counts,
            explicit_bounds=child.bounds,
            min=_NOT_KEPT,
            max=_NOT_KEPT,
        )
