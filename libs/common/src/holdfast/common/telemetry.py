"""OpenTelemetry: traces and metrics to an OTLP endpoint, nothing imported while it is off."""

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from holdfast.common.logging import get_logger, set_span_ids
from holdfast.common.metrics import AnyFamily, Histogram, Registry

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.sdk.metrics.export import Metric, MetricExporter, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

_log = get_logger("observability.telemetry.exporter")

_TIMEOUT_S = 10
_METRICS_INTERVAL_S = 15.0
_SCHEMES: Final[dict[str, tuple[Literal["grpc", "http"], bool, int]]] = {
    "grpc": ("grpc", True, 4317),
    "grpcs": ("grpc", False, 4317),
    "http": ("http", True, 4318),
    "https": ("http", False, 4318),
}
_EXPECTED = "expected host[:port] or a grpc://, grpcs://, http:// or https:// URL"


@dataclass(frozen=True, slots=True)
class OtlpEndpoint:
    """Where telemetry goes. `path` is what stands before /v1/traces and /v1/metrics (HTTP only)."""

    protocol: Literal["grpc", "http"]
    host: str
    port: int
    is_insecure: bool
    path: str = ""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def url(self, signal: Literal["traces", "metrics"]) -> str:
        """The HTTP address of one signal."""
        scheme = "http" if self.is_insecure else "https"
        return f"{scheme}://{self.authority}{self.path}/v1/{signal}"


def parse_endpoint(text: str) -> OtlpEndpoint:
    """The rules of `--otlp-endpoint`; a ValueError says what is expected."""
    text = text.strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "grpc", text
    if scheme.lower() not in _SCHEMES or re.search(r"[\s@]", rest):
        raise ValueError(_EXPECTED)
    protocol, is_insecure, default_port = _SCHEMES[scheme.lower()]
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if not host or parts.query or parts.fragment:
        raise ValueError(_EXPECTED)
    path = re.sub(r"/v1/(traces|metrics)$", "", parts.path.rstrip("/")) if protocol == "http" else ""
    return OtlpEndpoint(protocol, host, default_port if port is None else port, is_insecure, path)
