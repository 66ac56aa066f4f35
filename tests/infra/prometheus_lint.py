"""The rules of `promtool check metrics` for a page of Prometheus text, and those for which it has no eye."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_ABBREVIATIONS: Final = frozenset(
    {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
)
_OTHER_UNITS: Final = {
    **dict.fromkeys(["milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days"], "seconds"),
    **dict.fromkeys(["kilobytes", "megabytes", "gigabytes", "kibibytes", "mebibytes", "bits"], "bytes"),
    "percent": "ratio",
}
_TYPES: Final = frozenset({"counter", "gauge", "histogram", "summary"})
_ONLY_GROWS: Final = re.compile(
    r"holdfast_storage_(commits|conflicts|syncs|redis_(published|heard|outages))$"
)
_HISTOGRAM_PARTS: Final = ("_bucket", "_sum", "_count")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"')


@dataclass(slots=True)
class Metric:
    """One metric as its page declares it."""

    name: str
    kind: str = "untyped"
    help_text: str = ""
    label_names: set[str] = field(default_factory=set[str])


def problems(page: str) -> list[str]:
    """What is wrong with a page, one sentence a fault; nothing for a page without any."""
    metrics: dict[str, Metric] = {}
    found = list(_read(page, metrics))
    for metric in metrics.values():
        found += [f"{metric.name}: {text}" for text in _faults(metric)]
    return found


def _read(page: str, metrics: dict[str, Metric]) -> Iterator[str]:
    declared: set[tuple[str, str]] = set()
    samples: set[str] = set()
    for line in page.splitlines():
        if line.startswith("# "):
            _, word, name, text = line.split(" ", 3)
            if (word, name) in declared:
                yield f"{name}: {word} is there twice"
            declared.add((word, name))
            metric = metrics.setdefault(name, Metric(name))
            if word == "TYPE":
                metric.kind = text
            else:
                metric.help_text = text
            continue
        match = _SAMPLE.fullmatch(line)
        if match is None:
            yield f"not a sample: {line}"
            continue
        series = line.rpartition(" ")[0]
        if series in samples:
            yield f"{series} is there twice"
        samples.add(series)
        yield from _sample_faults(match, metrics)


def _sample_faults(match: re.Match[str], metrics: dict[str, Metric]) -> Iterator[str]:
    name, labels = match[1], match[2] or ""
    metric = metrics.get(name)
    if metric is None:
        family = next((name.removesuffix(part) for part in _HISTOGRAM_PARTS if name.endswith(part)), name)
        metric = metrics.get(family)
        if metric is None or metric.kind != "histogram":
            yield f"{name}: a sample without TYPE and HELP"
            return
    metric.label_names |= {found[1] for found in _LABEL.finditer(labels)}


def _faults(metric: Metric) -> Iterator[str]:
    name, kind = metric.name, metric.kind
    words = name.split("_")
    if not metric.help_text.strip():
        yield "no help text"
    if kind not in _TYPES:
        yield f"the type is {kind}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or "__" in name:
        yield "not in snake case"
    if (kind == "counter") != name.endswith("_total"):
        yield "counters, and nothing else, end in _total"
    if kind != "counter" and _ONLY_GROWS.fullmatch(name):
        yield "only grows, so it is a counter"
    if name.endswith(_HISTOGRAM_PARTS):
        yield "ends like a part of a histogram"
    for word in words:
        if word in _TYPES:
            yield f"has its type {word} in its name"
        if word in _ABBREVIATIONS:
            yield f"has the abbreviated unit {word} in its name"
        if word in _OTHER_UNITS:
            yield f"should be in {_OTHER_UNITS[word]}, not in {word}"
    units = [word for word in words if word in {"seconds", "bytes", "ratio"}]
    if units and words[-2 if kind == "counter" else -1] != units[0]:
        yield f"its unit {units[0]} is not at the end"
    if ("le" in metric.label_names) != (kind == "histogram" and bool(metric.label_names)):
        yield "the label le belongs to histograms"
    for label in metric.label_names:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", label) or label == "quantile":
            yield f"has the label {label}"
