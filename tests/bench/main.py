"""Runs the benchmarks: `python -m tests.bench.main [store|http|gateway|transaction|frame|all]`; a whole run writes
docs/benchmarks.md."""

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from tests.bench import frame_bench, gateway_bench, http_bench, report, store_bench, transaction_bench

PAGE_PATH: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PARTS: Final = ("store", "http", "gateway", "transaction", "frame", "all")


def main(part: str) -> None:
    if part == "store":
        store = store_bench.run()
        _say(report.store_tables(store), report.targets_table(report.store_targets(store)))
    elif part == "http":
        http = http_bench.run()
        _say(report.http_table(http), report.targets_table(report.http_targets(http)))
    elif part == "gateway":
        gateway = gateway_bench.run()
        _say(report.gateway_table(gateway), report.targets_table(report.gateway_targets(gateway)))
    elif part == "transaction":
        _say(report.transaction_table(transaction_bench.run()))
    elif part == "frame":
        frame = frame_bench.run()
        _say(report.frame_table(frame), report.targets_table(report.frame_targets(frame)))
    else:
        page = _page(
            store_bench.run(),
            http_bench.run(),
            gateway_bench.run(),
            transaction_bench.run(),
            frame_bench.run(),
        )
        PAGE_PATH.write_text(page, "utf-8")
        _say(page, f"wrote {PAGE_PATH.relative_to(PAGE_PATH.parents[1])}")


def _page(
    store: store_bench.StoreResult,
    http: report.HttpResult,
    gateway: report.HttpResult,
    transaction: report.HttpResult,
    frame: Sequence[frame_bench.Row],
) -> str:
    return report.PAGE.format(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=_machine(),
        targets=report.targets_table(
            [
                *report.store_targets(store),
                *report.http_targets(http),
                *report.gateway_targets(gateway),
                *report.frame_targets(frame),
            ]
        ),
        value_bytes=store_bench.VALUE_BYTES,
        postgres_origin=store.postgres_origin,
        store=report.store_tables(store),
        writers=store_bench.WRITERS[-1],
        steady=store_bench.STEADY_PER_S,
        http=report.http_table(http),
        gateway=report.gateway_table(gateway),
        clients=transaction_bench.CLIENTS,
        transaction=report.transaction_table(transaction),
        frame=report.frame_table(frame),
    )


def _machine() -> str:
    """What matters for the numbers, and no name."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, {_file_system()}, "
        f"Python {platform.python_version()}, uvloop"
    )


def _file_system() -> str:
    folder = Path(tempfile.gettempdir()).resolve()
    around = [part for part in psutil.disk_partitions(all=True) if folder.is_relative_to(part.mountpoint)]
    return max(around, key=lambda part: len(part.mountpoint)).fstype if around else "unknown file system"


def _say(*texts: str) -> None:
    sys.stdout.write("\n\n".join(texts) + "\n")


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "all"
    if chosen not in PARTS:
        sys.exit(f"usage: python -m tests.bench.main [{'|'.join(PARTS)}]")
    main(chosen)
