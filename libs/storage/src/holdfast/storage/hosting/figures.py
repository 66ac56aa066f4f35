"""What the metrics show of a store: every figure by its name, what it means, and whether it only grows."""

from collections.abc import Mapping
from typing import Final

from holdfast.common.telemetry.metrics import Registry
from holdfast.storage.port import Store
from holdfast.storage.store_clock import StoreClock

COUNTS: Final[Mapping[str, str]] = {
    "commits": "Batches that were committed.",
    "conflicts": "Batches that were refused because an expectation did not hold.",
    "syncs": "Groups of batches made durable together: journal syncs, or transactions on PostgreSQL.",
    "blobs_removed": "Blobs that were removed after no record referred to them any more.",
    "blob_removed_bytes": "Bytes of the blobs that were removed.",
    "cache_hits": "PostgreSQL: records that a transaction found in the cache.",
    "cache_misses": "PostgreSQL: records that a transaction did not find in the cache.",
    "cache_verified": "PostgreSQL: times that cached records were fetched again, because no commit checked them.",
    "cache_conflicts": "PostgreSQL: times that cached records, or a guess that a key is new, were out of date.",
    "redis_published": "Revisions published on Redis.",
    "redis_heard": "Revisions of other processes heard on Redis.",
    "redis_outages": "Times that Redis was lost.",
}
"""Counted since the store was opened."""

LEVELS: Final[Mapping[str, str]] = {
    # Positions in the store's history, as etcd shows its revision: they outlive the process, and a restore moves them back.
    "revision": "Newest durable revision that this process has seen.",
    "compacted_revision": "Oldest revision that a watch can begin at.",
    "watches": "Watches that are open.",
    "cache_entries": "PostgreSQL: keys that the cache has.",
    "cache_bytes": "PostgreSQL: bytes that the cache takes.",
    "cache_ranges": "PostgreSQL: ranges that the cache has in full.",
    "redis_up": "1 while Redis can be reached.",
}


def show_figures(store: Store, registry: Registry) -> None:
    """Every figure of the store: counts as counters, which restart with the process, and all others as gauges."""
    for name in store.figures():
        show = registry.counter if name in COUNTS else registry.gauge
        show(
            f"holdfast.storage.{name}",
            COUNTS.get(name) or LEVELS.get(name, f"Store: {name.replace('_', ' ')}."),
            callback=lambda name=name: float(store.figures()[name]),  # type: ignore[misc]  # mypy infers no default
        )


def show_clock(clock: StoreClock, registry: Registry) -> None:
    """How far the clocks agree, in seconds."""
    for name, help_text, read in (
        ("skew", "The machine's clock minus the clock that the store follows.", lambda: clock.skew_s),
        (
            "uncertainty",
            "How exactly the clock that the store follows is known.",
            lambda: clock.uncertainty_s,
        ),
        ("lead", "How far the store's time is ahead of the clock that it follows.", lambda: clock.lead_s),
    ):
        registry.gauge(f"holdfast.clock.{name}_seconds", help_text, unit="s", callback=read)
