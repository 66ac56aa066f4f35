"""A small metrics registry: counters, gauges and histograms, rendered as Prometheus text.

Names are dotted (`holdfast.lease.acquire`), which is what OTLP gets. Prometheus gets underscores, `_total` for counters
and base units: `holdfast.lease.acquire.duration_ms` is `holdfast_lease_acquire_duration_seconds`, in seconds.

Keep the child that `labels` returns where the path is hot: a child costs one attribute write, finding it a look into a dict. Adding to a number is one step of the interpreter, so no lock is held.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from time import perf_counter
from typing import Final, Generic, Literal, TypeVar, cast

from holdfast.common.errors import HoldfastError

Kind = Literal["counter", "gauge", "histogram"]

MILLISECOND_BUCKETS: Final = (
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
    50.0,
    100.0,
    250.0,
    500.0,
    1e3,
    2.5e3,
    5e3,
    1e4,
    6e4,
)
LABEL_SETS_MAX = 1000
OTHER = "other"

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
# By unit: its ending in a dotted name, the base unit that Prometheus wants, and how many of it make one of those.
_BASE_UNITS: Final = {
    "ms": ("_ms", "_seconds", 1000.0),
    "s": ("_seconds", "_seconds", 1.0),
    "By": ("_bytes", "_bytes", 1.0),
    "%": ("_percent", "_ratio", 100.0),
}
_NO_UNIT: Final = ("", "", 1.0)
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def set(self, value: float) -> None:
        self.value = value

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.value -= amount


class Histogram:
    """How often values fell into each bucket; `counts` has one more than `bounds`, for what is above them all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Child = TypeVar("Child", Counter, Gauge, Histogram)
Callback = Callable[[], float | Mapping[tuple[str, ...], float]]


class Family(Generic[Child]):
    """One metric with all its label sets; a metric without labels has one child, `labels()`."""

    def __init__(
        self,
        kind: Kind,
        name: str,
        help_text: str,
        *,
        labels: tuple[str, ...],
        unit: str,
        new_child: Callable[[], Child],
        on_overflow: Callable[[str], None],
    ) -> None:
        self.kind = kind
        self.name = name
        self.help_text = help_text
        self.label_names = labels
        self.unit = unit
        self.callback: Callback | None = None
        self._new_child: Callable[[], Child] = new_child
        self._on_overflow = on_overflow
        self.known: dict[tuple[str, ...], Child] = {}
        """The children by their label values."""

    def labels(self, *values: str) -> Child:
        """The child of these label values, in the order the names were declared."""
        child = self.known.get(values)
        return child if child is not None else self._add(values)

    def _add(self, values: tuple[str, ...]) -> Child:
        if len(values) != len(self.label_names):
            raise ValueError(f"metric {self.name} has labels {self.label_names}, not {values}")
        if len(self.known) >= LABEL_SETS_MAX:
            # A client that invents names must not fill the memory: from here on they share one set.
            self._on_overflow(self.name)
            values = (OTHER,) * len(values)
        return self.known.setdefault(values, self._new_child())

    def children(self) -> list[tuple[tuple[str, ...], Child]]:
        """All label sets and their children at this moment."""
        return list(self.known.items())

    def keep_only(self, label_sets: Collection[tuple[str, ...]]) -> None:
        """Forget every label set but these: what a callback no longer reports is gone, not frozen."""
        for values in self.known.keys() - set(label_sets):
            del self.known[values]


AnyFamily = Family[Counter] | Family[Gauge] | Family[Histogram]


class Registry:
    """All metrics of one process (or of one test)."""

    def __init__(self) -> None:
        self._families: dict[str, AnyFamily] = {}
        self._overflow = self.counter(
            "holdfast.metrics.overflow",
            "Label sets folded into 'other' because a metric had too many.",
            ("metric",),
        )
        self._callback_failed = self.counter(
            "holdfast.metrics.callback.failed",
            "Metrics whose callback raised when they were read.",
            ("metric",),
        )

    def counter(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...] = (),
        *,
        unit: str = "",
        callback: Callback | None = None,
    ) -> Family[Counter]:
        """A counter that is added to, or one that asks `callback`, whose answers never fall, when it is read."""
        family = self._family("counter", name, help_text, labels, unit, Counter)
        if callback is not None:
            family.callback = callback
        return family

    def gauge(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...] = (),
        *,
        unit: str = "",
        callback: Callback | None = None,
    ) -> Family[Gauge]:
        """A gauge that is set, or one that asks `callback` when it is read (a number, or one per label tuple)."""
        family = self._family("gauge", name, help_text, labels, unit, Gauge)
        if callback is not None:
            family.callback = callback
        return family

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...] = (),
        *,
        unit: str = "",
        bounds: tuple[float, ...] = MILLISECOND_BUCKETS,
    ) -> Family[Histogram]:
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(f"bounds of {name} do not grow: {bounds}")
        return self._family("histogram", name, help_text, labels, unit, lambda: Histogram(bounds))

    def _family(
        self,
        kind: Kind,
        name: str,
        help_text: str,
        labels: tuple[str, ...],
        unit: str,
        new_child: Callable[[], Child],
    ) -> Family[Child]:
        known = self._families.get(name)
        if known is not None:
            if (known.kind, known.label_names, known.unit) != (kind, labels, unit):
                raise ValueError(f"metric {name} exists as a {known.kind} with labels {known.label_names}")
            return cast("Family[Child]", known)  # The kind is equal, so the child type is.
        if not all(_NAME.fullmatch(part) for part in (name, *labels)):
            raise ValueError(f"metric {name} with labels {labels}: names are dotted lower-case words")
        family: Family[Child] = Family(
            kind,
            name,
            help_text,
            labels=labels,
            unit=unit,
            new_child=new_child,
            on_overflow=self._count_overflow,
        )
        self._families[name] = cast("AnyFamily", family)
        if not labels:
            family.labels()  # So that it shows as 0 before anything happened.
        return family

    def _count_overflow(self, name: str) -> None:
        if name != self._overflow.name:
            self._overflow.labels(name).inc()

    def families(self) -> list[AnyFamily]:
        """Every metric by name; those with a callback have been asked."""
        for family in list(self._families.values()):
            if family.callback is not None:
                self._ask(family)
        return [self._families[name] for name in sorted(self._families)]

    def _ask(self, family: AnyFamily) -> None:
        assert family.callback is not None
        try:
            answer = family.callback()
            values = answer if isinstance(answer, Mapping) else {(): answer}
            family.keep_only(values.keys())
            for labels, value in values.items():
                child = family.labels(*labels)
                assert not isinstance(child, Histogram)
                child.value = float(value)
        except Exception:  # noqa: BLE001 - a broken callback must not hide every other metric; it is counted
            self._callback_failed.labels(family.name).inc()

    def render(self) -> bytes:
        """Prometheus text, version 0.0.4."""
        return "".join(line for family in self.families() for line in _lines(family)).encode(errors="replace")


def prometheus_name(family: AnyFamily) -> str:
    """The name as Prometheus sees it."""
    ending, base_unit, _ = _BASE_UNITS.get(family.unit, _NO_UNIT)
    name = family.name.replace(".", "_").removesuffix(ending) + base_unit
    return name + "_total" if family.kind == "counter" else name


def _lines(family: AnyFamily) -> Iterator[str]:
    name = prometheus_name(family)
    per_base_unit = _BASE_UNITS.get(family.unit, _NO_UNIT)[2]
    yield f"# HELP {name} {family.help_text.translate(_HELP_ESCAPES)}\n"
    yield f"# TYPE {name} {family.kind}\n"
    for values, child in family.children():
        pairs = [
            f'{label.replace(".", "_")}="{value.translate(_ESCAPES)}"'
            for label, value in zip(family.label_names, values, strict=True)
        ]
        if isinstance(child, Histogram):
            yield from _histogram_lines(name, pairs, child, per_base_unit)
        else:
            yield f"{name}{_braces(pairs)} {_number(child.value / per_base_unit)}\n"


def _histogram_lines(name: str, pairs: list[str], child: Histogram, per_base_unit: float) -> Iterator[str]:
    cumulative = list(accumulate(child.counts))
    bounds = [_number(bound / per_base_unit) for bound in child.bounds]
    for bound, count in zip((*bounds, "+Inf"), cumulative, strict=True):
        le = f'le="{bound}"'
        yield f"{name}_bucket{_braces([*pairs, le])} {count}\n"
    yield f"{name}_sum{_braces(pairs)} {_number(child.sum / per_base_unit)}\n"
    yield f"{name}_count{_braces(pairs)} {cumulative[-1]}\n"


def _braces(pairs: list[str]) -> str:
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


OK = "ok"
FAILED = "failed"


class OperationMetrics:
    """`holdfast.lease.acquire` counts calls by namespace and result, `….duration_ms` times them."""

    __slots__ = ("calls", "duration")

    def __init__(self, registry: Registry, name: str, help_text: str) -> None:
        self.calls = registry.counter(name, help_text, ("namespace", "result"))
        self.duration = registry.histogram(f"{name}.duration_ms", f"{help_text} Time.", unit="ms").labels()

    def count(self, namespace: str, result: str, duration_s: float) -> None:
        self.calls.labels(namespace, result).value += 1
        self.duration.observe(duration_s * 1000)


class Timing:
    """`holdfast.txn.replay.duration_ms`: how long something of no namespace took, by how it ended."""

    __slots__ = ("_duration",)

    def __init__(self, registry: Registry, name: str, help_text: str) -> None:
        self._duration = registry.histogram(f"{name}.duration_ms", help_text, ("result",), unit="ms")

    @contextmanager
    def observed(self) -> Iterator[None]:
        """A block that is timed: its result is `ok`, or the code of the error that it ends with."""
        began_s = perf_counter()
        result = FAILED
        try:
            yield
            result = OK
        except HoldfastError as error:
            result = error.code
            raise
        finally:
            self._duration.labels(result).observe((perf_counter() - began_s) * 1000)
