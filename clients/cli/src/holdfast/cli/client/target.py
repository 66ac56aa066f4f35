"""Which server, key and lease a client command works on: its options, else the environment that acquire exports."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.client.print import printable
from holdfast.cli.output import failure
from holdfast.client import ClientError, ClientOptions, Lease
from holdfast.client.environment import PREFIXES, ClientSettings, client_settings
from holdfast.common.sizes import parse_duration_s

if TYPE_CHECKING:
    from holdfast.client import AsyncClient, Client, Session

_FOREVER = frozenset({"0", "0s", "forever", "infinite"})
_NO_WAIT = frozenset({"-1", "nowait"})


def from_environment(name: str) -> list[str]:
    """Both names of a variable, ours first."""
    return [prefix + name for prefix in PREFIXES]


SERVER: dict[str, Any] = {
    "server": Annotated[
        str,
        typer.Option(
            "--server", metavar="URL", envvar=from_environment("SERVER"), help="Comma separated URLs."
        ),
    ],
    "bundle": Annotated[
        Path | None,
        typer.Option(
            "--bundle", metavar="PATH", envvar=from_environment("BUNDLE"), help="PEM bundle for mTLS."
        ),
    ],
    "disable_mtls": Annotated[
        bool | None,
        typer.Option("--disable-mtls", envvar=from_environment("DISABLE_MTLS"), help="Plain HTTP."),
    ],
    "namespace": Annotated[
        str,
        typer.Option("--namespace", "-n", envvar=from_environment("NAMESPACE"), help="Default: `default`."),
    ],
}
_KEY: dict[str, Any] = {
    "key": Annotated[str, typer.Option("--key", "-k", envvar=from_environment("KEY"), help="Which key.")],
}
_LEASE: dict[str, Any] = {
    "lease": Annotated[str, typer.Option("--lease", envvar=from_environment("LEASE"), help="Lease id.")],
    "fencing_token": Annotated[
        str, typer.Option("--fencing-token", envvar=from_environment("FENCING_TOKEN"), help="Its token.")
    ],
    "txn_id": Annotated[
        str, typer.Option("--txn-id", envvar=from_environment("TXN_ID"), help="Its transaction.")
    ],
}
IfVersion = Annotated[
    int | None, typer.Option("--if-version", min=0, metavar="N", help="Only if the key is at this version.")
]
IfEtag = Annotated[
    str | None, typer.Option("--if-etag", metavar="ETAG", help="Only if the document has this ETag.")
]
_DEFAULTS: dict[str, object] = {"bundle": None, "disable_mtls": None}


@dataclass(slots=True, kw_only=True)
class Target:
    """What the options said."""

    server: str = ""
    bundle: Path | None = None
    disable_mtls: bool | None = None
    namespace: str = ""
    key: str = ""
    lease: str = ""
    fencing_token: str = ""
    txn_id: str = ""

    def settings(self, *, drain_aware: bool = True) -> ClientSettings:
        return client_settings(
            server=self.server, bundle=self.bundle, disable_mtls=self.disable_mtls, drain_aware=drain_aware
        )

    def client(self) -> "Client":
        from holdfast.client import Client

        settings = self.settings()
        return Client(*settings.servers, options=settings.options)

    def async_client(self) -> "AsyncClient":
        """For a command that holds a lease over the restart of its server, and so gives nothing back."""
        from holdfast.client import AsyncClient

        settings = self.settings(drain_aware=False)
        return AsyncClient(*settings.servers, options=settings.options)

    def required_key(self) -> str:
        if not self.key:
            raise failure(f"no key: give --key, or set {PREFIXES[0]}KEY")
        return self.key

    def session(self, client: "Client") -> "Session":
        """The lease that was acquired before, by another process."""
        key = self.required_key()
        if not self.lease:
            raise failure(f"no lease: give --lease, or set {PREFIXES[0]}LEASE as acquire prints it")
        if not self.fencing_token.isascii() or not self.fencing_token.isdigit():
            raise failure(f"no fencing token: give --fencing-token, or set {PREFIXES[0]}FENCING_TOKEN")
        return client.attach(
            Lease(
                key=key,
                lease_id=self.lease,
                txn_id=self.txn_id,
                fencing_token=int(self.fencing_token[:20]),
                namespace=self.namespace_or_default(client.options),
                correlation_id=client.options.correlation_id,
            )
        )

    def namespace_or_default(self, options: ClientOptions) -> str:
        return self.namespace or options.namespace


def takes_target(
    *, key: bool = True, lease: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate `def command(target: Target, …)`: it then takes the options that name server, key and lease."""
    return takes("target", {**SERVER, **(_KEY if key else {}), **(_LEASE if lease else {})}, Target)


def takes_server() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`takes_target` for what has no namespaces, as locks and the key space of etcd's API."""
    return takes("target", {name: option for name, option in SERVER.items() if name != "namespace"}, Target)


def takes(
    parameter: str, options: Mapping[str, Any], make: Callable[..., object]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command whose parameter of this name is made of these options."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        own = [item for item in inspect.signature(function).parameters.values() if item.name != parameter]

        @functools.wraps(function)
        def command(**arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in options}
            try:
                function(**{parameter: make(**given)}, **arguments)
            except ClientError as error:
                raise failure(printable(str(error))) from None

        parameters = [
            *(item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in own),
            *(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=_DEFAULTS.get(name, ""),
                    annotation=annotation,
                )
                for name, annotation in options.items()
            ),
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it here.
        command.__annotations__ = {item.name: item.annotation for item in parameters}
        return command

    return decorate


def duration_s(text: str) -> float:
    """A duration of an option; ends the program if it is none."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise failure(f"{text!r}: {error}", 2) from None


def block_s(text: str) -> float | None:
    """How long to wait for a key: None is for ever, 0 not at all. On the command line 0 is for ever, as in lockd."""
    word = text.strip().lower()
    if word in _FOREVER:
        return None
    if word in _NO_WAIT:
        return 0.0
    return max(0.0, duration_s(word))
