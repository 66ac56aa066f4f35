"""`holdfast store`: what can be done with a store while no server owns it, or beside servers on PostgreSQL."""

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from holdfast.cli.output import Output, OutputFormat, counted, failure, print_result
from holdfast.cli.progress import progress
from holdfast.cli.store.place import StorePlace, takes_store
from holdfast.cli.streams import standard_input, standard_output
from holdfast.common.sizes import format_size, parse_duration_s

if TYPE_CHECKING:
    from holdfast.storage.maintenance.backup import BackupSummary

T = TypeVar("T")

app = typer.Typer(
    name="store",
    no_args_is_help=True,
    add_completion=False,
    help="Back up, restore, verify, export, import and tend a store. A disk store must not be in use by a server.",
    epilog="Examples:  holdfast store verify  |  holdfast store backup /backups --store disk:///var/lib/holdfast",
)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Ctrl-C cancels the work, which cleans up, and then ends the program."""
    from holdfast.common.logging import configure_logging

    configure_logging("warn")
    return asyncio.run(work)


@app.command(
    epilog="Examples:  holdfast store backup /backups  |  holdfast store backup today.hfbackup --store disk:///data"
)
@takes_store
def backup(
    place: StorePlace,
    target: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="A new file, or a folder for one.")],
    output: Output = OutputFormat.TEXT,
) -> None:
    """Write the store as it is stored, at one revision, with all its blobs.

    What is encrypted stays encrypted: keep the bundle as well. A folder gets a file with date and revision in its name.
    """
    place.require()
    summary = _run(_backup(place, target))
    print_result(_members(summary), f"wrote {summary.path}: {_contents(summary)}", output)


async def _backup(place: StorePlace, target: Path) -> "BackupSummary":
    from holdfast.storage.maintenance.backup import backup as write_backup

    async with place.open_backend() as store:
        with progress("backup") as advance:
            return await write_backup(store, target, advance=advance)


@app.command(
    epilog="Examples:  holdfast store restore today.hfbackup --store disk:///new  |  "
    "holdfast store restore today.hfbackup --store postgres://user@host/database"
)
@takes_store
def restore(
    place: StorePlace,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    output: Output = OutputFormat.TEXT,
) -> None:
    """Fill an empty store from a backup, revisions and versions kept; the kind of store may be another one.

    The file is checked as a whole before the store is touched.
    """
    summary = _run(_restore(place, file))
    print_result(_members(summary), f"restored {summary.path}: {_contents(summary)}", output)


async def _restore(place: StorePlace, file: Path) -> "BackupSummary":
    from holdfast.storage.maintenance.backup import check_backup
    from holdfast.storage.maintenance.backup import restore as read_backup
    from holdfast.storage.maintenance.backup_file import read_header

    total = (await read_header(file)).record_count
    with progress("check", total) as advance:
        await check_backup(file, advance=advance)
    async with place.open_backend() as store:
        with progress("restore", total) as advance:
            return await read_backup(store, file, advance=advance)


def _members(summary: "BackupSummary") -> dict[str, object]:
    return {
        "path": str(summary.path),
        "revision": summary.revision,
        "records": summary.records,
        "blobs": summary.blobs,
        "blob_bytes": summary.blob_bytes,
        "encrypted": summary.is_encrypted,
    }


def _contents(summary: "BackupSummary") -> str:
    sealed = ", encrypted" if summary.is_encrypted else ""
    blobs = f"{counted(summary.blobs, 'blob')} ({format_size(summary.blob_bytes)})"
    return f"{counted(summary.records, 'record')}, {blobs}, revision {summary.revision}{sealed}"


@app.command(
    "export",
    epilog="Examples:  holdfast store export all.jsonl  |  holdfast store export - | jq -c .key",
)
@takes_store
def export(
    place: StorePlace,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A new file, or - for standard output.")],
) -> None:
    """Write every record as a line of JSON, decrypted, so that any other store can take it.

    Blobs go as they are stored: those of an encrypted store need the same root keys where they are imported.
    """
    place.require()
    lines = _run(_export(place, file))
    if file != "-":
        typer.echo(f"wrote {file}: {counted(lines, 'line')}")


async def _export(place: StorePlace, file: str) -> int:
    from holdfast.storage.maintenance.transfer import export_lines

    lines = 0
    async with place.open() as store:
        with _writable(file) as out, progress("export") as advance:
            async for line in export_lines(store, keyring=place.keyring, advance=advance):
                out.write(line.encode() + b"\n")
                lines += 1
    return lines


@contextmanager
def _writable(file: str) -> Iterator[IO[bytes]]:
    """Standard output, or a file that gets its name when it is whole."""
    from holdfast.storage.errors import InvalidArchive
    from holdfast.storage.whole_file import written_whole

    if file == "-":
        out = standard_output()
        yield out
        out.flush()
        return
    if Path(file).exists():
        raise InvalidArchive(f"{file} exists; name a new file")
    with written_whole(Path(file)) as out:
        yield out


@app.command(
    "import",
    epilog="Examples:  holdfast store import all.jsonl --store postgres://user@host/database  |  "
    "holdfast store export - | holdfast store import - --store disk:///new",
)
@takes_store
def import_(
    place: StorePlace,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="An export, or - for standard input.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace values that differ instead of refusing them.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Commit the records of an export into a store. It may hold others already, and can be repeated."""
    from holdfast.storage.maintenance.transfer import import_lines

    async def work() -> dict[str, int]:
        with _readable(file) as lines:
            async with place.open() as store:
                with progress("import") as advance:
                    done = await import_lines(
                        store, lines, keyring=place.keyring, overwrite=overwrite, advance=advance
                    )
        return {
            "records": done.records,
            "unchanged": done.unchanged,
            "blobs": done.blobs,
            "revision": done.revision,
        }

    members = _run(work())
    text = (
        f"imported {counted(members['records'], 'record')} ({members['unchanged']} more were there already) "
        f"and {counted(members['blobs'], 'blob')}; now at revision {members['revision']}"
    )
    print_result(members, text, output)


@contextmanager
def _readable(file: str) -> Iterator[Iterator[bytes]]:
    from holdfast.storage.errors import from_os
    from holdfast.storage.maintenance.transfer import LINE_BYTES_MAX

    if file == "-":
        # A pipe may be silent for long, and the loop waits with it: Ctrl-C must not wait for the loop.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        piped = standard_input()
        yield iter(lambda: piped.readline(LINE_BYTES_MAX + 1), b"")
        return
    with from_os(f"reading {file}"), Path(file).open("rb") as opened:
        yield iter(lambda: opened.readline(LINE_BYTES_MAX + 1), b"")


@app.command(epilog="Examples:  holdfast store verify  |  holdfast store verify --rewrap --output json")
@takes_store
def verify(
    place: StorePlace,
    rewrap: Annotated[
        bool,
        typer.Option(
            "--rewrap",
            help="Then re-wrap every value under the current root key. Blobs keep their keys: those lie within "
            "values that only their service can read.",
        ),
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Try every operation on the store, read and check every record, blob and kept change, and leave nothing behind.

    Exit status 0 if all is well, else 1.
    """
    from holdfast.cli.store.verification import verify_store

    if not _run(verify_store(place, rewrap=rewrap, output=output)):
        raise failure("storage verification failed")


@app.command(
    epilog="Examples:  holdfast store migrate --dry-run  |  holdfast store migrate --store postgres://…"
)
@takes_store
def migrate(
    place: StorePlace,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be applied, with its SQL; change nothing.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Apply the migrations that a store lacks. A store does this by itself when it is opened."""
    from holdfast.cli.store.migrate import members_of, migrate_store, text_of

    migrations = _run(migrate_store(place.url, is_dry_run=dry_run))
    print_result(members_of(migrations, is_dry_run=dry_run), text_of(migrations, is_dry_run=dry_run), output)


@app.command(epilog="Example:  holdfast store sweep --grace 0s --store disk:///var/lib/holdfast")
@takes_store
def sweep(
    place: StorePlace,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace", metavar="DURATION", help="Spare younger blobs; they may be on their way into a record."
        ),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Remove blobs that no record refers to. A server does this by itself from time to time."""
    try:
        grace_s = place.settings.blob_sweep_grace_s if grace is None else parse_duration_s(grace)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--grace") from None

    async def work() -> int:
        async with place.open_backend() as store:
            return await store.blobs.sweep(grace_s=grace_s)

    place.require()
    removed = _run(work())
    print_result({"removed": removed}, f"removed {counted(removed, 'blob')}", output)


@app.command(epilog="Example:  holdfast store compact --store disk:///var/lib/holdfast")
@takes_store
def compact(place: StorePlace, output: Output = OutputFormat.TEXT) -> None:
    """Drop history beyond the configured bounds. A server does this by itself from time to time."""

    async def work() -> int:
        async with place.open_backend() as store:
            return await store.compact()

    place.require()
    oldest = _run(work())
    print_result({"oldest_revision": oldest}, f"a watch may now start after revision {oldest}", output)
