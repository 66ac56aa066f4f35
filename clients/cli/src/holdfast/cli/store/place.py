"""Which store a command works on: `--store`, else what the server would take."""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.gateway.settings import GatewaySettings
    from holdfast.storage.codec.encoded import Backend
    from holdfast.storage.codec.keyring import Keyring
    from holdfast.storage.options import StoreOptions
    from holdfast.storage.port import Store

_OPTIONS = {
    "store": Annotated[
        str | None,
        typer.Option(
            "--store", metavar="URL", help="Storage URL; else from environment or config, as the server."
        ),
    ],
    "config": Annotated[
        str | None, typer.Option("--config", "-c", metavar="PATH", help="Config file (YAML).")
    ],
    "bundle": Annotated[
        str | None, typer.Option("--bundle", metavar="PATH", help="Bundle with the root key of the store.")
    ],
    "storage_encryption_disabled": Annotated[
        bool | None,
        typer.Option(
            "--disable-storage-encryption", help="The store is not encrypted, although there is a bundle."
        ),
    ],
}


class StorePlace:
    """The store that the options of a command name; opened by the command."""

    def __init__(self, given: dict[str, object]) -> None:
        self._given = given

    @functools.cached_property
    def settings(self) -> "GatewaySettings":
        from holdfast.cli.options import Flags
        from holdfast.gateway.settings import GatewaySettings

        return Flags(self._given).build(GatewaySettings)

    @functools.cached_property
    def options(self) -> "StoreOptions":
        from holdfast.storage.hosting.configured import store_options

        return store_options(self.settings)

    @property
    def url(self) -> str:
        return self.settings.store

    @property
    def keyring(self) -> "Keyring | None":
        return self.options.keyring

    def open(self) -> "AbstractAsyncContextManager[Store]":
        """As services see it: identity checked, values opened."""
        from holdfast.storage.opening import open_store

        return open_store(self.url, self.options)

    def open_backend(self) -> "AbstractAsyncContextManager[Backend]":
        """As it is stored."""
        from holdfast.storage.opening import open_backend

        return open_backend(self.url, self.options)

    def require(self) -> None:
        """Raise if there is no store on disk: a command that reads must not make an empty one and be content."""
        from holdfast.storage.errors import StoreUnavailable

        folder = self._folder()
        if folder is not None and not (folder / "shelf").is_dir():
            raise StoreUnavailable(f"there is no store at {folder}; name another one with --store")

    def _folder(self) -> "Path | None":
        from holdfast.storage.opening import disk_folder

        return disk_folder(self.url) if self.url.startswith("disk://") else None


def takes_store(function: Callable[..., None]) -> Callable[..., None]:
    """Decorate `def command(place: StorePlace, …)`: it then takes the options that name a store."""
    own = [item for item in inspect.signature(function).parameters.values() if item.name != "place"]

    @functools.wraps(function)
    def command(**arguments: object) -> None:
        given = {name: arguments.pop(name) for name in _OPTIONS}
        place = StorePlace({name: value for name, value in given.items() if value is not None})
        function(place=place, **arguments)

    parameters = [
        *(item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in own),
        *(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in _OPTIONS.items()
        ),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it here.
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    return command
