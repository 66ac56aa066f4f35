"""Runs the benchmarks: `python -m tests.bench.main [PART …]`; a whole run writes docs/benchmarks.md."""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from tests.bench import (
    c_load,
    compaction_bench,
    crowd_bench,
    encryption_bench,
    frame_bench,
    gateway_bench,
    growth_bench,
    http_bench,
    keys_bench,
    large_bench,
    locks_bench,
    preparation,
    report,
    store_bench,
    transaction_bench,
)
from tests.bench.page import PAGE
from tests.bench.report import Section

PAGE_PATH: Final = Path(__file__).parents[2] / "docs" / "benchmarks.md"
ALL: Final = "all"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or {ALL}")
    parser.add_argument(
        "--keys-max",
        type=int,
        default=growth_bench.SIZES[-1],
        help="of growth: the largest store",
    )
    parser.add_argument(
        "--attachment-mb", type=int, default=large_bench.ATTACHMENT_MB, help="of large: the attachment"
    )
    asked = parser.parse_intermixed_args(arguments)
    names: list[str] = asked.parts or [ALL]
    if unknown := set(names) - {*PARTS, ALL}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join((*PARTS, ALL))}")
    if ALL in names:
        page = _page({name: part(asked) for name, part in PARTS.items()})
        PAGE_PATH.write_text(page, "utf-8")
        _say(page, f"wrote {PAGE_PATH.relative_to(PAGE_PATH.parents[1])}")
        return
    for name in names:
        section = PARTS[name](asked)
        _say(section.tables, *([report.targets_table(section.targets)] if section.targets else []))


def _store(asked: argparse.Namespace) -> Section:
    store = store_bench.run()
    facts = {
        "value_bytes": str(store_bench.VALUE_BYTES),
        "postgres_origin": store.postgres_origin,
        "writers": str(store_bench.WRITERS[-1]),
        "steady": str(store_bench.STEADY_PER_S),
    }
    return Section(report.store_tables(store), report.store_targets(store), facts)


def _http(asked: argparse.Namespace) -> Section:
    http = http_bench.run()
    return Section(report.http_table(http), report.http_targets(http))


def _gateway(asked: argparse.Namespace) -> Section:
    gateway = gateway_bench.run()
    return Section(report.gateway_table(gateway), report.gateway_targets(gateway))


def _transaction(asked: argparse.Namespace) -> Section:
    table = report.transaction_table(transaction_bench.run())
    return Section(table, facts={"clients": str(transaction_bench.CLIENTS)})


def _frame(asked: argparse.Namespace) -> Section:
    rows = frame_bench.run()
    facts = {"frame_clients": str(preparation.CLIENTS), "load": c_load.name()}
    return Section(report.frame_table(rows), report.frame_targets(rows), facts)


def _encryption(asked: argparse.Namespace) -> Section:
    rows = encryption_bench.run()
    return Section(report.encryption_table(rows), report.encryption_targets(rows))


def _growth(asked: argparse.Namespace) -> Section:
    smaller = [keys for keys in growth_bench.SIZES if keys < asked.keys_max]
    rows = growth_bench.run([*smaller, asked.keys_max])
    crowds = crowd_bench.run()
    facts = {"growth_clients": str(growth_bench.CLIENTS)}
    tables = f"{report.growth_table(rows)}\n\n{report.crowd_table(crowds)}"
    return Section(tables, [*report.growth_targets(rows), *report.crowd_targets(crowds)], facts)


def _large(asked: argparse.Namespace) -> Section:
    rows = large_bench.run(asked.attachment_mb)
    return Section(report.large_table(rows), report.large_targets(rows))


def _locks(asked: argparse.Namespace) -> Section:
    result = locks_bench.run()
    facts = {"idle_connections": str(result.idle_connections), "idle_kb": f"{result.idle_kb:.1f}"}
    return Section(report.locks_table(result), report.locks_targets(result), facts)


def _keys(asked: argparse.Namespace) -> Section:
    result = keys_bench.run()
    return Section(report.keys_table(result), report.keys_targets(result))


def _compaction(asked: argparse.Namespace) -> Section:
    compaction = compaction_bench.run()
    return Section(report.compaction_table(compaction), facts={"parser": compaction.parser})


PARTS: Final[Mapping[str, Callable[[argparse.Namespace], Section]]] = {
    "store": _store,
    "http": _http,
    "gateway": _gateway,
    "transaction": _transaction,
    "frame": _frame,
    "encryption": _encryption,
    "growth": _growth,
    "large": _large,
    "locks": _locks,
    "keys": _keys,
    "compaction": _compaction,
}
"""By the name of the place in the page that its tables take."""


def _page(sections: Mapping[str, Section]) -> str:
    facts = {name: fact for section in sections.values() for name, fact in section.facts.items()}
    return PAGE.format(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        machine=_machine(),
        targets=report.targets_table([target for section in sections.values() for target in section.targets]),
        **{name: section.tables for name, section in sections.items()},
        **facts,
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
    main(sys.argv[1:])
