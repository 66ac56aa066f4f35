"""The report of `holdfast store verify`."""

import json

import typer

from holdfast.cli.output import OutputFormat
from holdfast.cli.progress import progress
from holdfast.cli.store.place import StorePlace
from holdfast.common.errors import HoldfastError
from holdfast.common.logging import mask_urls
from holdfast.storage.codec.encoded import EncodedStore
from holdfast.storage.codec.rewrap import rewrap_values
from holdfast.storage.errors import EncryptionMismatch, StorageError
from holdfast.storage.maintenance.verify import CheckResult, Verification
from holdfast.storage.port import Store


class Report:
    """Prints each check as it ends, or all of them as one JSON object at the end."""

    def __init__(self, url: str, output: OutputFormat) -> None:
        self._store = mask_urls(url)
        self._provider = url.partition("://")[0]
        self._is_text = output is OutputFormat.TEXT
        self._results: list[CheckResult] = []
        if self._is_text:
            typer.echo(f"Store: {self._store}\nProvider: {self._provider}\n")

    @property
    def is_good(self) -> bool:
        return all(result.problem is None for result in self._results)

    def add(self, result: CheckResult, *, note: str = "") -> None:
        self._results.append(result)
        if self._is_text and result.problem is None:
            typer.echo(f"✔ {result.name}{note}")
        elif self._is_text:
            typer.echo(f"✘ {result.name}: {result.problem}")

    def finish(self) -> None:
        if self._is_text:
            if self.is_good:
                typer.echo("Storage verification succeeded.")
            return
        checks = [{"name": name, "ok": problem is None, "error": problem} for name, problem in self._results]
        report = {"store": self._store, "provider": self._provider, "ok": self.is_good, "checks": checks}
        typer.echo(json.dumps(report, indent=2))


async def verify_store(place: StorePlace, *, rewrap: bool, output: OutputFormat) -> bool:
    """Run all checks; whether all went well."""
    report = Report(place.url, output)
    try:
        place.require()
        async with place.open() as store:
            report.add(CheckResult("Open", None))
            await _check(place, store, report)
            if rewrap:
                await _rewrap(place, store, report)
    except HoldfastError as error:
        report.add(CheckResult("Open", error.detail))
    report.finish()
    return report.is_good


async def _check(place: StorePlace, store: Store, report: Report) -> None:
    with progress("verify") as advance:
        async for result in Verification(store, keyring=place.keyring, advance=advance).results():
            report.add(result)


async def _rewrap(place: StorePlace, store: Store, report: Report) -> None:
    try:
        if place.keyring is None or not isinstance(store, EncodedStore):
            raise EncryptionMismatch("the store is not encrypted: there is nothing to re-wrap")
        with progress("rewrap") as advance:
            done = await rewrap_values(store.inner, place.keyring, advance=advance)
    except StorageError as error:
        report.add(CheckResult("Rewrap", error.detail))
    else:
        report.add(
            CheckResult("Rewrap", None), note=f" ({done.rewrapped} values, {done.current} needed none)"
        )
